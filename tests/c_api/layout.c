/* tests/c_api/layout.c -- sizes and numbers that compiled programs rely on, as a C compiler sees them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <seqtile.h>
#include <string.h>

_Static_assert(sizeof(DLTensor) == 48, "DLTensor");
_Static_assert(offsetof(DLTensor, device) == 8, "device");
_Static_assert(offsetof(DLTensor, ndim) == 16, "ndim");
_Static_assert(offsetof(DLTensor, dtype) == 20, "dtype");
_Static_assert(offsetof(DLTensor, shape) == 24, "shape");
_Static_assert(offsetof(DLTensor, strides) == 32, "strides");
_Static_assert(offsetof(DLTensor, byte_offset) == 40, "byte_offset");
_Static_assert(sizeof(seqtile_status) == 4, "seqtile_status");
_Static_assert(SEQTILE_OK == 0 && SEQTILE_NO_RECORD == 10 && SEQTILE_INTERNAL == 11, "statuses are never renumbered");

int main(void) {
  if (seqtile_abi_version() != SEQTILE_ABI_VERSION) return 1;
  if (strcmp(seqtile_status_name(SEQTILE_OUT_OF_RESOURCES), "out_of_resources") != 0) return 2;
  if (strcmp(seqtile_status_name(-1), "unknown") != 0 || strcmp(seqtile_status_name(99), "unknown") != 0) return 3;
  if (strcmp(seqtile_last_error(), "") != 0) return 4;
  return 0;
}
