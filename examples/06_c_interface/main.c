/* examples/06_c_interface/main.c -- the library from C: y = rms_norm(x) at any length.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   cc main.c -o norm $(pkg-config --cflags --libs seqtile) -lm
 */
#include <math.h>
#include <seqtile.h>
#include <stdio.h>
#include <stdlib.h>

enum { kWidth = 256, kMost = 300 };

static void check(seqtile_status status) {
  if (status == SEQTILE_OK) return;
  fprintf(stderr, "%s: %s\n", seqtile_status_name(status), seqtile_last_error());
  exit(1);
}

/* A dense f32 tensor; `shape` outlives it. */
static DLTensor tensor(float* data, int64_t* shape, int32_t rank) {
  DLTensor it = {0};
  it.data = data;
  it.device.device_type = kDLCPU;
  it.ndim = rank;
  it.dtype.code = kDLFloat;
  it.dtype.bits = 32;
  it.dtype.lanes = 1;
  it.shape = shape;
  return it;
}

/* The largest error of y, whose rows should have the mean square 1, as the weights are 1. */
static double error_of(const float* x, const float* y, int64_t rows) {
  double worst = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (int c = 0; c < kWidth; ++c) squares += (double)x[r * kWidth + c] * x[r * kWidth + c];
    for (int c = 0; c < kWidth; ++c)
      worst = fmax(worst, fabs(y[r * kWidth + c] - x[r * kWidth + c] / sqrt(squares / kWidth + 1e-5)));
  }
  return worst;
}

int main(void) {
  static float x[kMost * kWidth], y[kMost * kWidth], weight[kWidth];
  for (int i = 0; i < kMost * kWidth; ++i) x[i] = 0.02f * (float)(i * 37 % 101 - 50);
  for (int i = 0; i < kWidth; ++i) weight[i] = 1;

  seqtile_engine* engine = NULL;
  seqtile_op* norm = NULL;
  check(seqtile_engine_open(NULL, &engine));
  check(seqtile_engine_prepare(engine, "rms_norm", "{\"n\": 256, \"eps\": 1e-5}", &norm));
  seqtile_engine_release(engine); /* the operation keeps what it needs */

  char* text = NULL;
  check(seqtile_op_describe(norm, &text));
  printf("%s\n", text);
  seqtile_text_free(text);

  int64_t width = kWidth;
  for (int64_t length = 1; length <= kMost; length = length * 3 + 1) {
    int64_t shape[] = {length, kWidth};
    const DLTensor x_rows = tensor(x, shape, 2), weights = tensor(weight, &width, 1), y_rows = tensor(y, shape, 2);
    const DLTensor* tensors[] = {&x_rows, &weights, &y_rows};
    check(seqtile_op_call(norm, tensors, 3, SEQTILE_LENGTH_OF_TENSORS, NULL));
    check(seqtile_op_explain(norm, length, &text));
    const double error = error_of(x, y, length);
    printf("length %lld: error %.1e, %s\n", (long long)length, error, text);
    seqtile_text_free(text);
    if (!(error < 1e-5)) return 1;
  }
  seqtile_op_release(norm);
  return 0;
}
