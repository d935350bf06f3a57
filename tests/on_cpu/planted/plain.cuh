#pragma once
typedef unsigned int u32;
typedef unsigned long long u64;
