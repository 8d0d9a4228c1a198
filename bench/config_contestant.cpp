// bench/config_contestant.cpp -- see config_contestant.h.
// SPDX-License-Identifier: Apache-2.0
#include "bench/config_contestant.h"

#include <utility>

#include "autotune/engine/launch.h"
#include "bench/operands.h"
#include "seqtile/compiler.h"

namespace seqtile::bench {
namespace {

class ConfigContestant : public Contestant {
 public:
  ConfigContestant(const autotune::OpDef& op, const autotune::Workload& workload, const autotune::Config& config,
                   int64_t length, std::vector<std::vector<Tensor>> copies, std::shared_ptr<Device> device)
      : layout_(op.schema(workload)),
        grid_(op.grid(workload, config)),
        length_(length),
        copies_(std::move(copies)),
        device_(std::move(device)) {
    if (op.workspaces) workspaces_ = op.workspaces(workload, config);
    const auto function = autotune::build_kernel(op, workload, config, device_->target());
    kernel_ = device_->load(compile(*function, device_->target()));
    autotune::KernelCall call;
    layout_.bind(copies_[0], length_, {}, call);
    for (const auto& workspace : workspaces_) {
      const int64_t elements = workspace.elements.value(call.symbol_values());
      memory_.emplace_back(elements * dtype_bytes(workspace.dtype));
      elements_.push_back(elements);
    }
  }

  void run(int copy) override {
    autotune::KernelCall call;
    layout_.bind(copies_[copy], length_, {}, call);
    for (size_t i = 0; i < memory_.size(); ++i) autotune::append_workspace(call, memory_[i].data(), elements_[i]);
    device_->launch(*kernel_, autotune::grid_of(grid_, call.symbol_values()), call.block());
  }

 private:
  autotune::CallLayout layout_;
  std::array<autotune::SizeExpr, 3> grid_;
  std::vector<autotune::Workspace> workspaces_;
  int64_t length_;
  std::vector<std::vector<Tensor>> copies_;
  std::shared_ptr<Device> device_;
  std::unique_ptr<LoadedKernel> kernel_;
  std::vector<Buffer> memory_;
  std::vector<int64_t> elements_;
};

}  // namespace

std::unique_ptr<Contestant> make_config_contestant(const autotune::OpDef& op, const autotune::Workload& workload,
                                                   const autotune::Config& config, int64_t length,
                                                   std::vector<std::vector<Tensor>> copies,
                                                   std::shared_ptr<Device> device) {
  return std::make_unique<ConfigContestant>(op, workload, config, length, std::move(copies), std::move(device));
}

}  // namespace seqtile::bench
