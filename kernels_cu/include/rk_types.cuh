// Fixed-width names; no header of the CUDA toolkit is included anywhere (NVRTC has none).
#pragma once
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
