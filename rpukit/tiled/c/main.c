/* Trains with the mini-batches of batches.c, and compares losses and all lasting values with the bits that the plan's
 * CPU executor gave. */
#include "batches.h"
#include "network.h"
#include "target.h"

static void text_number(uint32_t number) {
    char digits[11], *at = digits + 10;
    *at = 0;
    do *--at = (char)('0' + number % 10);
    while (number /= 10);
    target_text(at);
}

static void text_float(float x) { /* six decimals, without the printf of a C library */
    if (x != x || x > 4e9f || x < -4e9f) {
        target_text("not a number to print");
        return;
    }
    if (x < 0.0f) target_text("-"), x = -x;
    uint32_t whole = (uint32_t)x, parts = (uint32_t)((x - (float)whole) * 1000000.0f);
    text_number(whole);
    target_text(".");
    for (uint32_t power = 100000; power; power /= 10) text_number(parts / power % 10);
}

static void text_pair(const char *name, uint32_t number) {
    target_text(name);
    text_number(number);
}

/* CRC-32 of a tensor's bytes, four bits at a time. */
static uint32_t sum_of(const tensor_t *tensor) {
    static const uint32_t steps[16] = {0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
                                       0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
                                       0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    uint32_t sum = 0xffffffff;
    uint8_t part[64];
    for (uint32_t at = 0; at < tensor->bytes; at += sizeof part) {
        uint32_t n = tensor->bytes - at < sizeof part ? tensor->bytes - at : sizeof part;
        target_read(part, arenas[tensor->level] + tensor->at + at, n);
        for (uint32_t k = 0; k < n; k++) {
            sum ^= part[k];
            sum = steps[sum & 15] ^ sum >> 4;
            sum = steps[sum & 15] ^ sum >> 4;
        }
    }
    return ~sum;
}

int main(int argc, char **argv) {
    target_begin(argc, argv);
    network_begin();
    uint32_t wrong = 0, train_ticks = 0, update_ticks = 0;
    for (uint32_t step = 0; step < N_STEPS; step++) {
        network_write_inputs(batches[step]);
        uint32_t begin = target_ticks();
        union { float number; uint32_t bits; } loss = {network_train(step % N_ACCUMULATE == 0)};
        train_ticks += target_ticks() - begin;
        int same = loss.bits == expected_losses[step];
        wrong += !same;
        text_pair("step ", step);
        target_text(" loss ");
        text_float(loss.number);
        target_text(same ? " ok\n" : " DIFFERS\n");
        if ((step + 1) % N_ACCUMULATE == 0) {
            begin = target_ticks();
            network_update();
            update_ticks += target_ticks() - begin;
        }
    }
    for (uint32_t k = 0; k < N_FINAL; k++)
        if (sum_of(&final_tensors[k]) != expected_sums[k]) {
            target_text(final_tensors[k].name);
            target_text(" DIFFERS\n");
            wrong++;
        }
    text_pair("BENCH stack=", target_stack_bytes());
    text_pair(" train_cycles=", train_ticks);
    text_pair(" opt_cycles=", update_ticks);
    text_pair(" errors=", wrong);
    target_text("\n");
    target_end(wrong != 0);
    return wrong != 0;
}
