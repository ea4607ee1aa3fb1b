/*
 * Included before every source file of llama.cpp when it is compiled for llamaherd (`-include`, see the Makefile).
 * It repairs two faults that cost speed, or the process, on x86 processors with AMX and AVX512-FP16; elsewhere it is
 * empty.
 *
 * 1. GCC 12 declares that LDTILECFG reads 8 bytes of the 64-byte tile configuration, and removes the stores to the
 *    others. The tiles are then not configured, and the first AMX instruction ends the process with SIGILL.
 * 2. With AVX512-FP16, ggml's half-precision loops take 128 values a turn and leave rows that are shorter to scalar
 *    code. Attention heads are often 64 wide: flash attention then spends two thirds of a step there. Without the
 *    macro ggml takes its loops of 64 values, which also sum in single precision.
 */
#if defined(__x86_64__) && defined(__GNUC__) && (defined(__AMX_TILE__) || defined(__AVX512FP16__))
#include <immintrin.h>
#undef __AVX512FP16__
#if defined(__AMX_TILE__) && !defined(__clang__)
#define _tile_loadconfig(config) __asm__ volatile("ldtilecfg\t%X0" ::"m"(*(const char(*)[64])(config)))
#endif
#endif
