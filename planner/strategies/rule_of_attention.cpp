// planner/strategies/rule_of_attention.cpp -- the loops of attention: batch, heads and queries.
// SPDX-License-Identifier: Apache-2.0
//
// The operands are q[batch, length, heads, d], k and v[batch, keys, groups, d], or the same with heads before lengths,
// and optionally a mask that broadcasts to [batch, heads, length, keys]. An axis that cuts the length of q, k and v is
// served in two ways, both with the collective within the kernel. Either it exchanges parts of the length for parts of
// the heads and back (eight all-to-alls in training), or it gathers keys and values and sums their gradients.
#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "planner/graph/local_shape.h"
#include "planner/graph/reshape_maps.h"
#include "planner/strategies/operator_rule.h"

namespace seqtile::planner {
namespace {

enum AttentionFactor { kBatch, kHeads, kQueries, kHeadsOfQueries, kGathered, kExchanged };

/// Dimensions of q, k, v and the result.
struct Dims {
  int length = 1, heads = 2;
};

Dims dims_of(const RuleView& node) {
  return operator_name(node.node()) == "scaled_dot_product_attention" ? Dims{2, 1} : Dims{};
}

int64_t size(const Shape& shape, int dim) { return shape[static_cast<size_t>(dim)]; }

bool is_attention(const RuleView& node, Dims dims) {
  if ((!node.has_inputs(3) && !node.has_inputs(4)) || node.shape().size() != 4) return false;
  const Shape &q = node.input_shape(0), &k = node.input_shape(1);
  return q == node.shape() && k.size() == 4 && k == node.input_shape(2) && k[0] == q[0] && k[3] == q[3] &&
         size(q, dims.heads) % size(k, dims.heads) == 0;
}

/// The mask's dimension that is aligned with `dim` of [batch, heads, length, keys], if it has the size `wanted`.
int dim_of_mask(const RuleView& node, int dim, int64_t wanted) {
  const Shape& mask = node.input_shape(3);
  const int at = dim - 4 + static_cast<int>(mask.size());
  return at >= 0 && size(mask, at) == wanted ? at : kNoDim;
}

/// Cuts the mask to the part that a device's queries and heads see.
void add_mask(const RuleView& node, Dims dims, Rule& rule) {
  const Shape& q = node.input_shape(0);
  const int batch = dim_of_mask(node, 0, q[0]), heads = dim_of_mask(node, 1, size(q, dims.heads)),
            queries = dim_of_mask(node, 2, size(q, dims.length));
  for (const auto& [factor, dim] :
       {std::pair(kBatch, batch), std::pair(kHeads, heads), std::pair(kQueries, queries),
        std::pair(kHeadsOfQueries, heads), std::pair(kGathered, queries), std::pair(kExchanged, kNoDim)})
    rule.factors[factor].operands.push_back(dim);
}

Rule attention_rule(Dims dims) {
  const int l = dims.length, h = dims.heads;
  return {{{"batch", {0, 0, 0}, 0},
           {"heads", {h, h, h}, h, {}, true},
           {"queries", {l, kNoDim, kNoDim}, l},
           {"heads of queries", {h, kNoDim, kNoDim}, h, {}, true},
           {"length with gathered keys", {l, l, l}, l, {}, false, l},
           {"length exchanged for heads", {l, l, l}, l, {}, false, l}}};
}

/// The number of keys that a query sees, if an argument gives it: "window=4096".
int64_t window_of(const Node& node) {
  constexpr std::string_view kWindow = "window=";
  for (const std::string& argument : node.arguments)
    if (argument.starts_with(kWindow))
      if (const auto window = number_of(argument.substr(kWindow.size())); window && *window > 0) return *window;
  return std::numeric_limits<int64_t>::max();
}

struct LocalAttention {
  int64_t batch, heads, groups, queries, keys, head_dim, window;

  bool has_window() const { return window < keys; }

  KernelCall call(const char* operation, const RuleView& node, double passes) const {
    const int64_t seen = std::min(keys, window), read = has_window() ? std::min(keys, queries + window) : keys;
    const double of_batch = static_cast<double>(batch * head_dim),
                 queries_and_result = 2 * static_cast<double>(queries * heads) * of_batch,
                 keys_and_values = 2 * static_cast<double>(read * groups) * of_batch;
    const double flops = 4 * of_batch * static_cast<double>(heads * queries) * static_cast<double>(seen);
    return {operation,
            node.dtype(),
            {batch, heads, groups, queries, seen, head_dim},
            passes * flops,
            passes * (queries_and_result + keys_and_values) * node.element_bytes()};
  }
};

/// Bytes of a device's part of [batch, length, heads, d].
double part_bytes(const LocalAttention& local, int64_t length, int64_t heads, const RuleView& node) {
  return static_cast<double>(local.batch * length * heads * local.head_dim) * node.element_bytes();
}

/// The work of the most loaded device, relative to the average, where `devices` share the queries in order. Under a
/// causal mask the last device's queries see the most keys. Attention of decoder layers is causal; with a window all
/// queries cost the same.
double most_work(const RuleView& node, const LocalAttention& local, int devices) {
  const bool is_causal = operator_name(node.node()) == "attention" && !local.has_window();
  return is_causal ? 2 - 1.0 / devices : 1;
}

Work attention_work(const RuleView& node, const Cut& cut, Dims dims) {
  const Mesh& mesh = node.mesh();
  const Shape &q = node.input_shape(0), &k = node.input_shape(1);
  const auto devices = [&](AttentionFactor factor) { return mesh.devices(cut.axes[factor]); };
  const int by_heads = devices(kHeads) * devices(kExchanged), alone = devices(kHeadsOfQueries);
  LocalAttention local{local_size(q[0], devices(kBatch)),
                       local_size(size(q, dims.heads), by_heads * alone),
                       alone > 1 ? 1 : local_size(size(k, dims.heads), by_heads),
                       local_size(size(q, dims.length), devices(kQueries) * devices(kGathered)),
                       size(k, dims.length),
                       q[3],
                       window_of(node.node())};
  Work work;
  const bool has_window = local.has_window();
  work.forward = node.time(local.call(has_window ? "window_attention" : "attention", node, 1), work);
  if (node.has_any_gradient())
    work.backward =
        node.time(local.call(has_window ? "window_attention_backward" : "attention_backward", node, 2.5), work);
  const double most = most_work(node, local, devices(kQueries));  // gathered keys come with rows cut into equal work
  work.forward *= most;
  work.backward *= most;
  const AxisSet fused = cut.axes[kExchanged] | cut.axes[kGathered];
  if (!fused) return work;
  const int axis = first_axis(fused), n = mesh.devices(fused);
  double forward, backward;
  if (cut.axes[kExchanged]) {
    const auto exchange = [&](double bytes) { return collective_seconds(mesh, Collective::all_to_all, axis, bytes); };
    forward = backward = 2 * exchange(part_bytes(local, local.queries, local.heads, node)) +
                         2 * exchange(part_bytes(local, local.keys, local.groups, node));
  } else {
    const double keys = part_bytes(local, local_size(local.keys, n), local.groups, node);
    forward = 2 * collective_seconds(mesh, Collective::all_gather, axis, keys);
    backward = 2 * forward;  // gathered again; gradients summed and scattered
  }
  work.communication = node.costs().fused(forward, work.forward);
  if (node.has_any_gradient()) work.communication += node.costs().fused(backward, work.backward);
  return work;
}

/// Whether the cut gives every device equally many groups or, with fewer groups than devices, heads of one group.
/// kHeads must cut before kHeadsOfQueries, so that the heads of queries belong to the device's own groups. An exchange
/// would cut inside of a group.
bool fits_heads(const RuleView& node, const Cut& cut, int dim) {
  const int64_t heads = size(node.input_shape(0), dim), all_groups = size(node.input_shape(1), dim);
  const int exchanged = node.mesh().devices(cut.axes[kExchanged] | cut.axes[kHeads]),
            alone = node.mesh().devices(cut.axes[kHeadsOfQueries]);
  if (all_groups % exchanged != 0 || heads % (exchanged * alone) != 0) return false;
  if (alone == 1) return true;
  const int64_t groups = all_groups / exchanged;
  return !cut.axes[kExchanged] && last_axis(cut.axes[kHeads]) < first_axis(cut.axes[kHeadsOfQueries]) &&
         alone > groups && alone % groups == 0;
}

}  // namespace

bool rule_attention(RuleView& node) {
  const Dims dims = dims_of(node);
  if (!is_attention(node, dims)) return false;
  Rule rule = attention_rule(dims);
  if (node.node().inputs.size() == 4) add_mask(node, dims, rule);
  struct Best {
    Cut cut;
    Work work;
    double seconds() const { return work.forward + work.backward + work.communication; }
  };
  std::map<std::vector<uint32_t>, Best> best;  // by set of layouts and kind of communication
  for (const Cut& cut : node.cuts(rule)) {
    if (!fits_heads(node, cut, dims.heads)) continue;
    const Best one{cut, attention_work(node, cut, dims)};
    const std::vector<uint32_t> layouts = {node.operand(rule, cut, 0).bits(), node.operand(rule, cut, 1).bits(),
                                           node.result(rule, cut).bits(), cut.axes[kExchanged]};
    const auto [place, is_new] = best.try_emplace(layouts, one);
    if (!is_new && one.seconds() < place->second.seconds()) place->second = one;
  }
  for (const auto& [layouts, one] : best) node.add(rule, one.cut, one.work);
  return true;
}

}  // namespace seqtile::planner
