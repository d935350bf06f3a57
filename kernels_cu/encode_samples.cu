// Encode samples as table codes and numbers, and validate them.
//
//   codes = the value where a table takes it, -1 where it is unknown, wrong, or nothing for a table
//   numbers = the value for densities, NaN where it is unknown, wrong, or nothing for a density
//   fault = 1 if a value is infinite, or a known one is wrong: a fraction or outside a table's support, no count from 0,
//   or too large for REAL
//
//   x (n_sample, n_variable) IN, NaN unknown; unknown (n_mask, n_variable) bytes, n_mask n_sample, 1 for all, or 0
//   support, traits (n_variable) int: values of a table; 1 a table, 2 a density, 4 counts
//   codes int, numbers REAL (n_sample, n_variable); fault (1) int
//
// A grid-stride loop over values. Macros: REAL; IN the type of x, WHOLE=1 for integers.
// mirror: rpukit/circuits/_mirror/data.py::encode_samples
// op: rpukit.circuits.compiled.encoder.encode_samples
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: REAL=double IN=double
// check: IN=i64 WHOLE=1
// source: docs/semantics/circuits.md, section 1.
#include "circuit_rows.cuh"

#ifndef IN
#define IN float
#endif
#ifndef WHOLE
#define WHOLE 0
#endif
#if WHOLE
typedef i64 Wide;
#else
typedef double Wide;
#endif

extern "C" __global__ void __launch_bounds__(256)
encode_samples(int n_sample, int n_variable, int n_mask, const int *support, const int *traits, const IN *x, const unsigned char *unknown,
               int *codes, REAL *numbers, int *fault) {
    u64 n = (u64)n_sample * n_variable;
    for (u64 i = (u64)blockIdx.x * 256 + threadIdx.x; i < n; i += (u64)gridDim.x * 256) {
        int v = (int)(i % n_variable), trait = traits[v], code = -1;
        Wide wide = (Wide)x[i];
        REAL number = (REAL)RK_NAN;
        bool known = wide == wide, wrong = known && wide - wide != 0;
        known = known && !wrong && !(n_mask && unknown[n_mask == 1 ? v : i]);
        if (known && (trait & 1)) {
            bool whole = wide >= 0 && wide < support[v] && wide == (Wide)(i64)wide;
            if (whole) code = (int)wide;
            wrong = wrong || !whole;
        }
        if (known && (trait & 2)) {
            REAL rounded = (REAL)x[i];
            // From 2^53 on all values are whole, and need not fit an integer.
            bool count = wide >= 9007199254740992 || (wide >= 0 && wide == (Wide)(i64)wide);
            if (rounded - rounded != 0 || ((trait & 4) && !count))
                wrong = true;
            else
                number = rounded;
        }
        codes[i] = code;
        numbers[i] = number;
        if (wrong) fault[0] = 1;
    }
}
