// Restart points of a chain of products, so that every product of the library has one definition:
// one accumulator, reduction index ascending, fma; restarted at every multiple of RK_SEGMENT;
// segment results added left to right.
#pragma once
#define RK_SEGMENT 16384
