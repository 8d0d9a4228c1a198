// autotune/op_def.cpp -- see op_def.h.
// SPDX-License-Identifier: Apache-2.0
#include "autotune/op_def.h"

#include <fmt/ranges.h>

#include "autotune/kernel_name.h"
#include "jit/base/hash.h"
#include "jit/base/nearest_word.h"
#include "jit/ir/length_sizes.h"
#include "jit/ir/row_alignment.h"
#include "seqtile/builder.h"
#include "seqtile/error.h"

namespace seqtile::autotune {
namespace {

void require(bool present, const OpDef& op, const char* member) {
  if (!present) throw Error(ErrorCode::invalid_argument, "operation " + op.name + " lacks " + member);
}

/// Every size that is the length (plus a constant), by its slot in the argument block.
std::vector<ir::LengthSize> length_sizes(const Schema& schema) {
  std::vector<ir::LengthSize> sizes;
  int64_t slot = 0;
  for (const ArgSpec& arg : schema.args) {
    for (size_t d = 0; d < arg.dims.size(); ++d)
      if (arg.dims[d].symbol == "length") sizes.push_back({slot + 1 + static_cast<int64_t>(d), arg.dims[d].size});
    slot += 1 + 2 * static_cast<int64_t>(arg.dims.size());
  }
  return sizes;
}

}  // namespace

std::string OpDef::source_hash() const { return sha256_hex(name + "\n" + std::to_string(version)); }

void Registry::add(OpDef op) {
  if (op.name.empty()) throw Error(ErrorCode::invalid_argument, "an operation needs a name");
  for (const auto& known : ops_)
    if (known->name == op.name)
      throw Error(ErrorCode::invalid_argument, "operation " + op.name + " is registered already");
  require(op.normalize != nullptr, op, "normalize");
  require(op.schema != nullptr, op, "schema");
  require(op.config_space != nullptr, op, "config_space");
  require(op.default_config != nullptr, op, "default_config");
  require(op.build != nullptr, op, "build");
  require(op.grid != nullptr, op, "grid");
  require(op.cost != nullptr, op, "cost");
  require(op.predict_us != nullptr, op, "predict_us");
  require(op.reference != nullptr, op, "reference");
  require(op.tolerance != nullptr, op, "tolerance");
  ops_.push_back(std::make_unique<OpDef>(std::move(op)));
}

const OpDef& Registry::find(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const auto& op : ops_) {
    if (op->name == name) return *op;
    names.push_back(op->name);
  }
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("no operation is called \"{}\"; there are: {}{}", name,
                  names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")), did_you_mean(name, names)));
}

double predicted_us(const OpDef& op, const Workload& workload, const Config& config, int64_t length,
                    const Target& target) {
  if (target.is_gpu() && op.gpu_work) return predict_us(op.gpu_work(workload, config, length, target), target.gpu);
  return op.predict_us(workload, config, length, target);
}

std::string form_of(const Config& config) {
  std::string form;
  for (const auto& [name, value] : config.values())
    if (const auto* text = std::get_if<std::string>(&value)) form += *text + '\n';
  return form;
}

namespace {

/// Number of ranks whose programs are in one launch: virtual ranks share a GPU and have one launch together.
int64_t ranks_in_launch(const OpDef& op, const Workload& workload) {
  if (!op.on_rank) return 1;
  const RankCall call = op.on_rank(workload, 0, 1);
  return call.fabric.starts_with("virtual:") ? call.world_size : 1;
}

}  // namespace

std::unique_ptr<ir::Function> build_kernel(const OpDef& op, const Workload& workload, const Config& config,
                                           const Target& target) {
  KernelBuilder builder(kernel_name(op, workload, config, target));
  if (target.is_gpu()) {
    builder.align_rows(kGpuAlignment);
    builder.schedule({{"length_sizes", ir::length_sizes_attribute(length_sizes(op.schema(workload)))}});
    for (const char* name : {"num_warps", "num_stages", "cluster"})
      if (config.values().contains(name)) builder.schedule({{name, config.get_int(name)}});
    if (const int64_t ranks = ranks_in_launch(op, workload); ranks > 1) builder.schedule({{"ranks_in_launch", ranks}});
  }
  op.build(builder, workload, config, target);
  return builder.finish();
}

}  // namespace seqtile::autotune
