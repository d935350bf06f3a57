// Gather what was read from the fast array in a digital buffer, and take out what is to be written.
//
// Event t read the line values z of slice i. With H the buffer of the slice and u = kappa_t, or
// kappa_t / rates[offset] where RATED:
//   KIND 2: omega = H + u z,                          q = omega / threshold
//   KIND 3: omega = keep H + sign_t line_sign z u,    q = omega, counted where |q| >= 1
//   KIND 4: first Q = M where the event begins a period; omega = H + sign_t line_sign (z - Q) u, q as 3;
//           then M = (1 - mu) M + mu z
//   n = clip(trunc(q), -length, length); d = -n, or 0 where the event does not write;
//   where n counts: FORGET: omega = momentum omega, else omega -= (1 - momentum) n unit, and where
//   cap > 0 omega is clipped to +-cap; H = omega. (unit: threshold for KIND 2, else 1)
//
//   events (n_event, 4)          int32: slice, next event of the same slice or -1, flags, offset of its sample;
//                                flags: 1 begins a period, 2 writes, 4 first event of its slice
//   kappas (n_event, 2)          REAL: sign_t, kappa_t
//   rates (n_batch)              REAL, or null
//   line_sign (n_line)           REAL, +-1
//   z, d (n_event, n_line)       REAL
//   buffer, mean, past (n_slice, n_line)   REAL, H, M, Q; mean and past for KIND 4 only
//   status (1)                   not zero: do nothing
//
// A thread follows one line through the events of one slice, in order.
// Macros: KIND, FORGET, RATED, REAL.
// mirror: rpukit/analog/_mirror/transfer.py::transfer_buffer
// op: rpukit.analog.transfer.transfer_buffer
// bits: exact
// arch: sm_80 sm_90a sm_100a sm_120
// check: KIND=2
// check: KIND=4 FORGET=0 RATED=1
// check: REAL=double
// source: Rasch et al., Nature Communications 15:7133 (2024), algorithms 1 to 3.
#include "rk_real.cuh"

#ifndef KIND
#define KIND 3
#endif
#ifndef FORGET
#define FORGET 1
#endif
#ifndef RATED
#define RATED 0
#endif

extern "C" __global__ void __launch_bounds__(128)
transfer_buffer(int n_event, int n_line, REAL threshold, REAL length, REAL momentum, REAL keep, REAL mu, REAL cap,
                const int *events, const REAL *kappas, const REAL *rates, const REAL *line_sign, const REAL *z,
                REAL *buffer, REAL *mean, REAL *past, REAL *d, const int *status) {
    int line = blockIdx.x * 128 + threadIdx.x;
    if (*status || line >= n_line || !(events[4 * blockIdx.y + 2] & 4)) return;
    u64 cell = (u64)events[4 * blockIdx.y] * n_line + line;
    REAL omega = buffer[cell];
    for (int t = blockIdx.y; t >= 0; t = events[4 * t + 1]) {
        int flags = events[4 * t + 2];
        REAL u = RATED ? kappas[2 * t + 1] / rates[events[4 * t + 3]] : kappas[2 * t + 1];
        REAL v = z[(u64)t * n_line + line], unit = (REAL)1;
#if KIND == 2
        omega = rk_fma(u, v, omega);
        REAL q = omega / threshold;
        unit = threshold;
#else
#if KIND == 4
        if (flags & 1) past[cell] = mean[cell];
        REAL fresh = v - past[cell];
        mean[cell] = rk_fma(mu, v, ((REAL)1 - mu) * mean[cell]);
#else
        REAL fresh = v;
        omega = keep * omega;
#endif
        omega = rk_fma(kappas[2 * t] * line_sign[line] * fresh, u, omega);
        REAL q = omega;
#endif
        REAL n = rk_min(rk_max(rk_trunc(q), -length), length);
        if (n != 0.0f) {
            omega = FORGET ? momentum * omega : rk_fma(-((REAL)1 - momentum) * n, unit, omega);
            if (!FORGET && cap > 0.0f) omega = rk_min(rk_max(omega, -cap), cap);
        }
        d[(u64)t * n_line + line] = flags & 2 ? -n : 0.0f;
    }
    buffer[cell] = omega;
}
