// Sizes of a block of det_gemm_tensor.cu: its tile, the ring of stages and the memory of sums. Defaults of its macros.
#pragma once
#ifndef NC
#define NC 2
#endif
#ifndef BN
#define BN 256
#endif
#ifndef ST
#define ST 4
#endif
#ifndef P_MN
#define P_MN 0
#endif
#ifndef Q_MN
#define Q_MN 0
#endif
#ifndef OUT_T
#define OUT_T 0
#endif
#ifndef RESULT
#define RESULT u16
#endif
#ifndef FROM
#define FROM 0
#endif
#ifndef ADD
#define ADD 0
#endif
#ifndef PARTS
#define PARTS 0
#endif
#ifndef SEGMENT
#define SEGMENT 4096
#endif
#ifndef HELD
#define HELD 0
#endif
#ifndef STAGED
#define STAGED 0
#endif
#ifndef STREAM
#define STREAM 0
#endif
#ifndef LOOSE
#define LOOSE 0
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef CLUSTER
#define CLUSTER 1
#endif
#ifndef CI
#define CI 1
#endif
#ifndef SLABS
#define SLABS 1
#endif
#ifndef JOINED
#define JOINED 1
#endif
#define SHARE (CLUSTER / JOINED)  // blocks that fetch for each other
#define CJ (SHARE / CI)
#define BK (64 * SLABS)
#define SENDERS 2  // warps that fetch
#ifndef BM
#define BM (64 * NC)
#endif
#define N_THREAD (128 * (NC + 1))
#define P_BYTES (BM * 2 * BK)
#define P_BOX (BM < 64 ? BM : 64)   // lines of a box of those along memory
#define Q_BOX (BN <= 32 ? BN : 64)
#define Q_ROWS (Q_MN ? (BN + Q_BOX - 1) / Q_BOX * Q_BOX : BN)  // lines of q in a stage: of those along memory whole boxes
#define Q_BYTES (Q_ROWS * 2 * BK)
#define WIDE (sizeof(RESULT) == 4)
#define BUFFERS (NC == 3 ? 1 : 2)  // boxes of a warpgroup that are being stored at a time
#define STAGING (!OUT_T ? NC * BUFFERS * 8192 : WIDE ? 0 : NC * BN * 128)  // results being stored
#define EACH (1 + BN / 64 / NC)                    // boxes of sums of a warpgroup in a stage
#define LAG (BN <= 64 && SLABS == 1 ? 2 : 1)  // stages that are being multiplied besides the newest
#define N_SUMS ((BN / 32 + EACH - 1) / EACH)        // stages of a tile's sums
#define N_FROM (FROM && !OUT_T ? N_SUMS : 0)
#define N_ADD (ADD && !OUT_T ? N_SUMS : 0)
#define LEFT (KEEPS ? BN / 2 - HELD - STAGED : 0)  // sums of segments of a thread that wait in `room`
#define PER (SEGMENT / BK)  // stages of a segment
#define KEEPS (PARTS == 1 || PARTS == 2)  // blocks make several segments of a tile
static_assert(!STREAM || (PARTS < 3 && !FROM && !ADD), "workers pass on chains that begin with nothing");
static_assert(!PARTS || (!FROM && !ADD && SEGMENT % BK == 0), "sums of segments begin with nothing and are added to nothing");
static_assert(PARTS != 3 || (JOINED > 1 && NC * 64 * BN * 4 <= ST * (P_BYTES + Q_BYTES)), "results of a segment lie in the ring");
static_assert(CLUSTER % JOINED == 0 && (PARTS == 3 || JOINED == 1), "a cluster makes whole tiles");
static_assert(CLUSTER == 1 || (!FROM && !ADD && SHARE % CI == 0), "a cluster fetches no sums");
static_assert(BN % 16 == 0 && (OUT_T || BN % 64 == 0 || (!FROM && !ADD)), "boxes of sums");
static_assert(BM == 64 * NC || (NC == 1 && OUT_T && SHARE == 1 && ST * Q_BYTES >= 8192), "lines that are read and not there lie in q");
static_assert(LEFT >= 0 && STAGED <= (OUT_T ? 0 : BUFFERS * 16), "places for sums");
