// kernels/seqpar/exchange/rank_op.h -- the OpDef of an operation over ranks that is one type.
// SPDX-License-Identifier: Apache-2.0
//
// Beside its fields and tensors such a type has
//   Ranks ranks;                              // whose fields are among the operation's
//   static constexpr std::array kShares;      // names of fields by which ranks may differ: their shares of weights
//   ExchangeShape exchange(int64_t chunk_rows) const;      // room for every form of the operation
//   static const Protocol& protocol(const Config& config);
// and may have
//   RowLayout layout;                                      // absent: contiguous
//   int64_t own_columns(int rank, bool of_keys) const;     // of tensors that are cut by heads
//   int64_t most_columns() const;                          // of a row that is sent; chunks are then of so many bytes
// Users see these. The rest is a second type, Kernel, whose member `op` is the operation:
//   void build(const RankBuild<Op>& given) const;
//   autotune::SizeExpr programs(const Config& config) const;
//   void reference(const autotune::Problem& p, const Tensors<Tensor>& t, std::span<const int64_t> rows,
//                  Tensors<std::vector<double>>& out) const;
//                                                          // or it returns the rows of every output, in their order
// and, itself or by its member plans(), which returns another type that has them,
//   std::vector<Config> configs(const Setting& s) const;   // the default first; the length is that of all ranks' rows
//   Config default_config(const Setting& s) const;         // absent: the first of these
//   double predict_us(const Config& config, const Setting& s) const;   // absent: the place among the configurations
//   autotune::Cost cost(std::span<const int64_t> symbols) const;
//   autotune::OpDef::Tolerance tolerance(int64_t length) const;
// It may have
//   bool joins(int64_t length) const;                      // a call on one process finds its rows joined too
//   std::vector<autotune::Workspace> workspaces(const Config& config) const;           // absent: one counter
//   bool fill(const autotune::Problem& p, size_t arg, uint64_t seed) const;  // called before the channel is filled
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "kernels/seqpar/exchange/channel_args.h"
#include "kernels/seqpar/exchange/identity.h"
#include "kernels/seqpar/exchange/reduction.h"
#include "kernels/seqpar/exchange/row_layout.h"
#include "kernels/seqpar/exchange/transfer.h"
#include "seqtile/kernel.h"
#include "seqtile/seqpar.h"

namespace seqtile::kernels::seqpar {

template <class Op>
RowLayout layout_of(const Op& op) {
  if constexpr (requires { op.layout; }) return op.layout;
  else return RowLayout::contiguous;
}

/// The exchange of the operation with its smallest chunks.
template <class Op>
ExchangeShape exchange_of(const Op& op) {
  if constexpr (requires { op.most_columns(); })
    return op.exchange(rows_of_chunk(op.most_columns() * dtype_bytes(op.dtype), kSmallestChunkBytes));
  else return op.exchange(kSmallestChunk);
}

/// The exchange of a configuration's kernel: sums over ranks have places for all of their forms, of which it uses one.
template <class Op>
ExchangeShape exchange_of(const Op& op, const autotune::Config& config) {
  ExchangeShape shape = op.exchange(config.get_int("chunk_rows", kSmallestChunk));
  if (reduce_form(config) == ReduceForm::one_shot) shape.first_phase = kOneShotPhase;
  return with_transfer(std::move(shape), transfer_of(config));
}

/// The parts that a kernel is built from. A class that builds one in several steps derives from it.
template <class Op>
struct RankBuild {
  KernelBuilder& b;
  const Op& op;
  const autotune::Config& config;
  const Target& target;
  const ExchangeShape& shape;

  /// Declares the channel's parameters behind those that are there. `all_rows`: a view with the rows of all ranks.
  Exchange exchange_over(Var all_rows) const {
    return {b, Op::protocol(config), shape, declare_channel(b), b.size(all_rows, 0)};
  }
};

/// The exchange of a call on one process, with all that peers would have sent.
template <class Kernel>
ExchangeShape preset_exchange_of(const Kernel& kernel, [[maybe_unused]] int64_t length) {
  ExchangeShape shape = exchange_of(kernel.op);
  if constexpr (requires { kernel.joins(length); }) shape.presets_joined = kernel.joins(length);
  return shape;
}

/// Values of the schema's symbols for a rank.
template <class Kernel>
std::vector<int64_t> symbols_of(const Kernel& kernel, const autotune::Schema& schema, int rank, int64_t length) {
  const auto& op = kernel.op;
  std::vector<int64_t> symbols;
  for (const std::string& symbol : schema.symbols) {
    if (symbol == "length") symbols.push_back(length);
    if (symbol == kOwnRows.symbol) symbols.push_back(num_rows(layout_of(op), rank, length, op.ranks.size()));
    if constexpr (requires { op.own_columns(rank, false); })
      for (const bool of_keys : {false, true})
        if (symbol == (of_keys ? kOwnKvColumns : kOwnColumns).symbol) symbols.push_back(op.own_columns(rank, of_keys));
  }
  add_channel_symbols(symbols, preset_exchange_of(kernel, length), length);
  return symbols;
}

template <class Op>
autotune::Schema rank_schema_of(const Op& op) {
  autotune::Schema schema = kernels::schema_of(op).schema;
  add_channel_args(schema);
  return schema;
}

/// The object with the kernel's configurations and costs: the kernel itself, or what its plans() returns.
template <class Kernel>
decltype(auto) plans_of(const Kernel& kernel) {
  if constexpr (requires { kernel.plans(); }) return kernel.plans();
  else return (kernel);
}

template <class Kernel>
autotune::OpDef rank_op(std::string summary, int64_t version) {
  using autotune::Config;
  using autotune::Problem;
  using autotune::Workload;
  using Op = decltype(Kernel::op);
  constexpr auto kernel_of = [](const Workload& w) { return Kernel{op_of<Op>(w)}; };
  autotune::OpDef op = typed_op_without_reference<Op>(std::move(summary), version);
  op.shares = Op::kShares;
  op.schema = [](const Workload& w) { return rank_schema_of(op_of<Op>(w)); };
  op.symbols = [=](const Workload& w, int64_t length) {
    const Kernel kernel = kernel_of(w);
    return symbols_of(kernel, rank_schema_of(kernel.op), kernel.op.ranks.longest(), length);
  };
  op.on_rank = [=](const Workload& w, int rank, int64_t length) {
    const Kernel kernel = kernel_of(w);
    return autotune::RankCall{kernel.op.ranks.size(), kernel.op.ranks.fabric,
                              channel_options(exchange_of(kernel.op), length),
                              symbols_of(kernel, rank_schema_of(kernel.op), rank, length)};
  };
  op.config_space = [=](const Workload& w, int64_t length, const Target& target) {
    autotune::ConfigSpace space;
    for (Config& config : plans_of(kernel_of(w)).configs({length, w.threads, target})) space.add(std::move(config));
    return space;
  };
  op.default_config = [=](const Workload& w, int64_t length, const Target& target) {
    const Kernel kernel = kernel_of(w);
    const auto& plans = plans_of(kernel);
    const Setting setting{length, w.threads, target};
    if constexpr (requires { plans.default_config(setting); }) return plans.default_config(setting);
    else return plans.configs(setting).front();
  };
  op.predict_us = [=](const Workload& w, const Config& config, int64_t length, const Target& target) {
    const Kernel kernel = kernel_of(w);
    const auto& plans = plans_of(kernel);
    const Setting setting{length, w.threads, target};
    if constexpr (requires { plans.predict_us(config, setting); }) return plans.predict_us(config, setting);
    else {
      const std::vector<Config> configs = plans.configs(setting);
      return static_cast<double>(std::ranges::find(configs, config) - configs.begin());
    }
  };
  op.build = [=](KernelBuilder& b, const Workload& w, const Config& config, const Target& target) {
    const Kernel kernel = kernel_of(w);
    ExchangeShape exchange = exchange_of(kernel.op, config);
    exchange.identity = identity_of(common_arguments(w, Op::kShares), config);
    kernel.build({b, kernel.op, config, target, exchange});
  };
  op.grid = [=](const Workload& w, const Config& config) -> std::array<autotune::SizeExpr, 3> {
    return {kernel_of(w).programs(config), {}, {}};
  };
  op.workspaces = [=](const Workload& w, const Config& config) -> std::vector<autotune::Workspace> {
    if constexpr (requires(const Kernel& kernel) { kernel.workspaces(config); }) return kernel_of(w).workspaces(config);
    else return {{"counters", DType::i32, {1}}};
  };
  op.fill = [=, declared = op.fill](const Problem& p, size_t arg, uint64_t seed) {
    const Kernel kernel = kernel_of(*p.workload);
    if constexpr (requires { kernel.fill(p, arg, seed); })
      if (kernel.fill(p, arg, seed)) return true;
    return fill_channel_arg(p, arg, preset_exchange_of(kernel, p.symbols[0]), kernel.op.ranks.longest(), seed) ||
           declared(p, arg, seed);
  };
  op.reference = [=](const Problem& p, std::span<const int64_t> rows, std::vector<std::vector<double>>& outputs) {
    const Kernel kernel = kernel_of(*p.workload);
    const auto tensors = tensors_of(kernel.op, p.tensors);
    if constexpr (requires { kernel.reference(p, tensors, rows); }) {
      outputs = kernel.reference(p, tensors, rows);
    } else {
      typename Op::template Tensors<std::vector<double>> out;
      kernel.reference(p, tensors, rows, out);
      outputs.clear();
      OutputCollector collector(outputs);
      kernel.op.tensors(collector, out);
    }
  };
  op.cost = [=](const Workload& w, std::span<const int64_t> symbols) { return plans_of(kernel_of(w)).cost(symbols); };
  op.tolerance = [=](const Workload& w, std::span<const int64_t> symbols) {
    return plans_of(kernel_of(w)).tolerance(symbols[0]);
  };
  return op;
}

}  // namespace seqtile::kernels::seqpar
