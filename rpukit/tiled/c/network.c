/* Runs programs, and the calls that a user makes. */
#include "network.h"

#include "dma.h"
#include "target.h"

typedef struct { const tile_t *tile; void *buffers[N_BUFFERS]; } task_t;

typedef struct frame_s { /* a loop that is running */
    struct frame_s *outer;
    const uint16_t *steps; /* of the addresses that follow */
    uint32_t turn, bits, left;
} frame_t;

#if LOOP_DEPTH
static uint32_t step_of(frame_t *loop, uint32_t far) {
    if (!loop->left) loop->bits = *loop->steps++, loop->left = 16;
    uint32_t moves = loop->bits & 1, step = 0;
    loop->bits >>= 1, loop->left--;
    if (moves) {
        step = *loop->steps++;
        if (far) step |= (uint32_t)*loop->steps++ << 16;
    }
    return step;
}
#endif

static const uint16_t *read_address(const uint16_t *word, frame_t *loop, uint32_t level, uint32_t *at) {
    uint32_t far = FAR_LEVELS >> level & 1, found = *word++;
    if (far) found |= (uint32_t)*word++ << 16;
    (void)loop;
#if LOOP_DEPTH
    for (; loop; loop = loop->outer) found += loop->turn * step_of(loop, far);
    if (!far) found &= 0xffff;
#endif
    *at = found * UNIT;
    return word;
}

static const uint16_t *start_copy(const uint16_t *word, frame_t *loop, int token) {
    static const loop_t once = {1, 0, 0};
    const copy_t *c = &copies[*word++];
    uint32_t to_at, from_at;
    word = read_address(word, loop, c->to_level, &to_at);
    word = read_address(word, loop, c->from_level, &from_at);
    uint8_t *to = arenas[c->to_level] + to_at;
    const uint8_t *from = arenas[c->from_level] + from_at;
    int n = N_LOOPS; /* axes around the bytes of a row */
    while (n > 1 && !c->loops[n - 1].n) n--;
    const loop_t *rows = &c->loops[n - 1], *mid = n > 1 ? rows - 1 : &once, *far = n > 2 ? rows - 2 : &once;
    int inward = c->to_level > c->from_level;
    dma_begin(token, inward ? c->to_level : c->from_level, inward);
    for (uint32_t i = 0; i < far->n; i++)
        for (uint32_t j = 0; j < mid->n; j++) {
            uint8_t *at = to + i * far->to + j * mid->to;
            const uint8_t *source = from + i * far->from + j * mid->from;
            if (rows->n == 1) dma_start_1d(token, at, source, c->row_bytes);
            else dma_start_2d(token, at, rows->to, source, rows->from, c->row_bytes, rows->n);
        }
    dma_commit(token);
    return word;
}

static void compute_part(void *task, int core, int n_cores) {
    const task_t *own = task;
    compute_tile((team_t){core, n_cores}, own->tile, own->buffers);
}

static const uint16_t *compute(const uint16_t *word, frame_t *loop, const tile_t *tile) {
    task_t task = {tile, {0}};
    for (int k = 0; k < N_BUFFERS; k++)
        if (tile->buffers >> k & 1) {
            uint32_t at;
            word = read_address(word, loop, N_LEVELS - 1, &at);
            task.buffers[k] = arenas[N_LEVELS - 1] + at;
        }
    target_fork(compute_part, &task);
    dma_compute(tile->cycles);
    return word;
}

static void run(const uint16_t *word, const uint16_t *end, frame_t *loop);

#if LOOP_DEPTH
static const uint16_t *repeat(const uint16_t *word, frame_t *outer, uint32_t turns) {
    const uint16_t *body = word + 2, *steps = body + word[0];
    frame_t own = {outer, 0, 0, 0, 0}, kept[LOOP_DEPTH]; /* loops around this one read their steps in every turn */
    int depth = 0;
    for (frame_t *loop = outer; loop; loop = loop->outer) kept[depth++] = *loop;
    for (; own.turn < turns; own.turn++) {
        own.steps = steps, own.left = 0;
        depth = 0;
        for (frame_t *loop = outer; loop; loop = loop->outer) *loop = kept[depth++];
        run(body, steps, &own);
    }
    return steps + word[1];
}
#endif

static void run(const uint16_t *word, const uint16_t *end, frame_t *loop) {
    while (word < end) {
        uint32_t what = *word++, number = what >> 2;
        if ((what & 3) == STEP_WAIT) dma_wait((int)number);
        else if ((what & 3) == STEP_COPY) word = start_copy(word, loop, (int)number);
#if LOOP_DEPTH
        else if ((what & 3) == STEP_LOOP) word = repeat(word, loop, number);
#endif
        else word = compute(word, loop, &tiles[number]);
    }
}

void run_program(const program_t *program) {
    run(program->words, program->words + program->n, 0);
    dma_end_of_program();
}

static void write(const tensor_t *to, const void *from) { target_write(arenas[to->level] + to->at, from, to->bytes); }

void network_begin(void) {
    for (uint32_t k = 0; k < N_LEVELS; k++) target_clear(arenas[k], arena_bytes[k]);
    for (uint32_t k = 0; k < N_WEIGHTS; k++) {
        const void *values = network_weight(k);
        if (values) write(&weight_tensors[k], values);
    }
}

void network_write_inputs(const void *const inputs[N_INPUTS]) {
    for (uint32_t k = 0; k < N_INPUTS; k++) write(&input_tensors[k], inputs[k]);
}

float network_train(int reset) {
    uint8_t flag = reset != 0;
    float loss;
    write(&reset_tensor, &flag);
    run_program(&training_network);
    target_read(&loss, arenas[loss_tensor.level] + loss_tensor.at, sizeof loss);
    return loss;
}

void network_update(void) { run_program(&optimizer_network); }
