// Build options of non-ideal products: direction, passes, non-idealities of wires and converters.
#pragma once
#ifndef PASSES
#define PASSES 1
#endif
#ifndef IR_DROP
#define IR_DROP 0
#endif
#ifndef OFFSET
#define OFFSET 0
#endif
#ifndef SATURATES
#define SATURATES 0
#endif
#ifndef W_NOISE
#define W_NOISE 0
#endif
#ifndef TRANSPOSED
#define TRANSPOSED 0
#endif
