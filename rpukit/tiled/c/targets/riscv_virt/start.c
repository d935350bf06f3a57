/* Start of RISC-V harts, which share the tiles; output through the UART of the board `virt`. */
#include "../bare/stack.h"
#include "target.h"

enum { STACK_BYTES = 8192, UART = 0x10000000, FINISHER = 0x100000, PASSED = 0x5555, FAILED = 0x3333 };

int main(int argc, char **argv);

#if N_HARTS > 1
static struct {
    void (*work)(void *task, int core, int n_cores);
    void *task;
    uint32_t round, done; /* how many tiles were begun; harts that are done with this one */
} shared;

void target_fork(void (*work)(void *task, int core, int n_cores), void *task) {
    shared.work = work, shared.task = task, shared.done = 1;
    __atomic_add_fetch(&shared.round, 1, __ATOMIC_RELEASE);
    work(task, 0, N_HARTS);
    while (__atomic_load_n(&shared.done, __ATOMIC_ACQUIRE) < N_HARTS) {}
}
#endif

__attribute__((noreturn, used)) static void help(int hart) { /* the other harts */
#if N_HARTS > 1
    for (uint32_t round = 1;; round++) {
        while (__atomic_load_n(&shared.round, __ATOMIC_ACQUIRE) < round) {}
        shared.work(shared.task, hart, N_HARTS);
        __atomic_add_fetch(&shared.done, 1, __ATOMIC_RELEASE);
    }
#endif
    (void)hart;
    for (;;) {}
}

void target_text(const char *text) {
    for (; *text; text++) *(volatile uint8_t *)UART = (uint8_t)*text;
}

void target_end(int status) {
    *(volatile uint32_t *)FINISHER = status ? (uint32_t)status << 16 | FAILED : PASSED;
    for (;;) {}
}

uint32_t target_ticks(void) {
    uint32_t count;
    __asm__ volatile("csrr %0, minstret" : "=r"(count));
    return count;
}

uint32_t target_stack_bytes(void) { /* of the hart that needed most */
    uint32_t most = 0;
    for (int hart = 0; hart < N_HARTS; hart++) {
        const uint32_t *end = stack_end - hart * (STACK_BYTES / 4);
        uint32_t used = stack_used(end - STACK_BYTES / 4, end);
        most = used > most ? used : most;
    }
    return most;
}

__attribute__((noreturn, used)) static void start(void) {
    target_end(main(0, 0));
    for (;;) {}
}

/* Hart 0 clears variables and runs main; each hart paints its stack and turns its float unit on. */
__attribute__((naked, noreturn, section(".reset"))) void reset(void) {
    __asm__ volatile(
        "li t0, 0x2000\n csrs mstatus, t0\n csrr a0, mhartid\n"
        "la sp, stack_end\n slli t0, a0, 13\n sub sp, sp, t0\n li t1, 8192\n sub t1, sp, t1\n li t2, 0x5aa55aa5\n"
        "1: sw t2, 0(t1)\n addi t1, t1, 4\n bltu t1, sp, 1b\n"
        "bnez a0, 4f\n la t0, bss_begin\n la t1, bss_end\n"
        "2: bgeu t0, t1, 3f\n sw zero, 0(t0)\n addi t0, t0, 4\n j 2b\n"
        "3: la t0, ready\n li t1, 1\n fence\n sw t1, 0(t0)\n call start\n"
        "4: la t0, ready\n 5: lw t1, 0(t0)\n beqz t1, 5b\n fence\n call help");
}

/* Not among the variables that are cleared: harts wait for it. */
__attribute__((section(".data.ready"), used)) volatile uint32_t ready = 0;
