// kernels/registry.cpp -- see registry.h.
// SPDX-License-Identifier: Apache-2.0
#include "kernels/registry.h"

#include "kernels/act/act_and_mul.h"
#include "kernels/act/act_and_mul_backward.h"
#include "kernels/attention/attention_backward.h"
#include "kernels/attention/attention_forward.h"
#include "kernels/linear/grouped_linear.h"
#include "kernels/linear/linear.h"
#include "kernels/linear/linear_wgrad.h"
#include "kernels/norm/layer_norm.h"
#include "kernels/norm/rms_norm.h"
#include "kernels/norm/rms_norm_backward.h"
#include "kernels/rows/embedding.h"
#include "kernels/rows/rope.h"
#include "kernels/rows/softmax.h"
#include "kernels/seqpar/rank_ops.h"

namespace seqtile::kernels {

autotune::Registry make_registry() {
  autotune::Registry registry;
  registry.add(linear());
  registry.add(linear_wgrad());
  registry.add(grouped_linear());
  registry.add(attention_forward());
  registry.add(attention_backward());
  registry.add(rms_norm());
  registry.add(rms_norm_backward());
  registry.add(layer_norm());
  registry.add(rope());
  registry.add(act_and_mul());
  registry.add(act_and_mul_backward());
  registry.add(softmax());
  registry.add(embedding());
  for (const seqpar::RankOp& op : seqpar::rank_ops()) registry.add(op.define());
  return registry;
}

}  // namespace seqtile::kernels

namespace seqtile {

std::unique_ptr<Engine> open_engine(const EngineOptions& options) {
  return Engine::open(options, kernels::make_registry());
}

std::unique_ptr<Engine> open_engine(const EngineOptions& options, Fabric& fabric) {
  return Engine::open(options, kernels::make_registry(), fabric);
}

}  // namespace seqtile
