/* Start of a Cortex-M, its tick counter, and output through semihosting, which debuggers and QEMU have. */
#include "../bare/stack.h"
#include "target.h"

extern uint32_t data_load[], data_begin[], data_end[], bss_begin[], bss_end[];
int main(int argc, char **argv);

#define REGISTER(address) (*(volatile uint32_t *)(address))
enum { SYSTICK_CONTROL = 0xe000e010, SYSTICK_RELOAD = 0xe000e014, SYSTICK_VALUE = 0xe000e018, CPACR = 0xe000ed88 };
enum { WRITE0 = 0x04, EXIT_EXTENDED = 0x20, APPLICATION_EXIT = 0x20026, MOST_TICKS = 0xffffff };

static volatile uint32_t wraps; /* of the tick counter, which has 24 bits */

static uint32_t semihost(uint32_t what, const void *with) {
    register uint32_t r0 __asm__("r0") = what;
    register const void *r1 __asm__("r1") = with;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

void target_text(const char *text) { semihost(WRITE0, text); }

void target_end(int status) {
    const uint32_t given[2] = {APPLICATION_EXIT, (uint32_t)status};
    semihost(EXIT_EXTENDED, given);
    for (;;) {}
}

uint32_t target_ticks(void) {
    uint32_t high, low;
    do high = wraps, low = REGISTER(SYSTICK_VALUE);
    while (high != wraps);
    return high * (MOST_TICKS + 1u) + (MOST_TICKS - low);
}

uint32_t target_stack_bytes(void) { return stack_used(stack_begin, stack_end); }

static void tick(void) { wraps++; }

static void fault(void) {
    target_text("FAULT of the processor\n");
    target_end(4);
}

void reset(void);
__attribute__((section(".vectors"), used)) static void (*const vectors[16])(void) = {
    (void (*)(void))stack_end, reset, fault, fault, fault, fault, fault, fault,
    fault, fault, fault, fault, fault, fault, fault, tick,
};

__attribute__((noreturn, used)) static void start(void) {
    REGISTER(CPACR) |= 0xfu << 20; /* the floating-point unit */
    __asm__ volatile("dsb\n isb" ::: "memory");
    for (uint32_t *to = data_begin, *from = data_load; to < data_end;) *to++ = *from++;
    for (uint32_t *to = bss_begin; to < bss_end;) *to++ = 0;
    REGISTER(SYSTICK_RELOAD) = MOST_TICKS;
    REGISTER(SYSTICK_VALUE) = 0;
    REGISTER(SYSTICK_CONTROL) = 7; /* counts processor clocks, with an interrupt where it wraps */
    target_end(main(0, 0));
    for (;;) {}
}

/* Paints the stack, of which nothing is in use yet. */
__attribute__((naked, noreturn)) void reset(void) {
    __asm__ volatile("ldr r0, =stack_begin\n ldr r1, =stack_end\n ldr r2, =0x5aa55aa5\n mov sp, r1\n"
                     "1: cmp r0, r1\n bhs 2f\n str r2, [r0]\n adds r0, r0, #4\n b 1b\n"
                     "2: ldr r0, =start\n bx r0\n .ltorg");
}
