// kernels/registry.cpp -- see registry.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry.h"

#include "kernels/attention_backward.h"
#include "kernels/attention_forward.h"
#include "kernels/embedding.h"
#include "kernels/layer_norm.h"
#include "kernels/linear.h"
#include "kernels/linear_wgrad.h"
#include "kernels/rms_norm.h"
#include "kernels/rms_norm_backward.h"
#include "kernels/rope.h"
#include "kernels/seqpar/rank_ops.h"
#include "kernels/silu_and_mul.h"
#include "kernels/silu_and_mul_backward.h"
#include "kernels/softmax.h"

namespace seqtile::kernels {

autotune::Registry make_registry() {
  autotune::Registry registry;
  registry.add(linear());
  registry.add(linear_wgrad());
  registry.add(attention_forward());
  registry.add(attention_backward());
  registry.add(rms_norm());
  registry.add(rms_norm_backward());
  registry.add(layer_norm());
  registry.add(rope());
  registry.add(silu_and_mul());
  registry.add(silu_and_mul_backward());
  registry.add(softmax());
  registry.add(embedding());
  for (const seqpar::RankOp& op : seqpar::rank_ops()) registry.add(op.define());
  return registry;
}

}  // namespace seqtile::kernels
