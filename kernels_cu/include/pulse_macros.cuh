// Build options of every kernel that pulses cells: the model (its step, whether a run of pulses is one draw,
// planes and global parameters of its cells), write noise, counts of pulses, words of a train.
#pragma once
#ifndef STEP
#define STEP constant_step
#endif
#ifndef HAS_RUN
#define HAS_RUN 1
#endif
#ifndef N_PLANE
#define N_PLANE 4
#endif
#ifndef N_GLOBAL
#define N_GLOBAL 8
#endif
#ifndef WRITE_NOISE
#define WRITE_NOISE 0
#endif
#ifndef N_WORD
#define N_WORD 1
#endif
#ifndef COUNT
#define COUNT 0
#endif
