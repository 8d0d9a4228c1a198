// jit/ptx/call_graph.cpp -- see call_graph.h.
// SPDX-License-Identifier: Apache-2.0
#include "jit/ptx/call_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <unordered_map>

#include "jit/ptx/ptx_lexer.h"
#include "seqtile/error.h"

namespace seqtile::sim {
namespace {

class Walk {
 public:
  explicit Walk(const PtxModule& module) : module_(module) {}

  std::vector<ReachedFunction> run(const PtxKernel& kernel) {
    visit(kernel);
    for (size_t f = 0; f < found_.size(); ++f) found_[f].is_recursive = reaches(f, f);
    return std::move(found_);
  }

 private:
  /// In depth first, without recursion of our own: a text may chain thousands of functions.
  void visit(const PtxKernel& kernel) {
    struct Step {
      const PtxKernel* text;
      std::vector<const PtxKernel*> callees;
      size_t next = 0;
    };
    std::vector<Step> path = {{&kernel, callees_of(kernel)}};
    seen_[&kernel] = kOpen;
    std::vector<std::pair<const PtxKernel*, std::vector<const PtxKernel*>>> order;
    while (!path.empty()) {
      Step& step = path.back();
      if (step.next == step.callees.size()) {
        seen_[step.text] = order.size();
        order.emplace_back(step.text, std::move(step.callees));
        path.pop_back();
        continue;
      }
      const PtxKernel* callee = step.callees[step.next++];
      if (!seen_.try_emplace(callee, kOpen).second) continue;
      path.push_back({callee, callees_of(*callee)});
    }
    for (const auto& [text, callees] : order) {
      ReachedFunction& function = found_.emplace_back(ReachedFunction{text, {}, false});
      for (const PtxKernel* callee : callees) function.callees.push_back(seen_.at(callee));
    }
  }

  std::vector<const PtxKernel*> callees_of(const PtxKernel& text) const {
    if (!text.problem.empty()) throw Error(ErrorCode::compile_failed, text.problem);
    std::vector<const PtxKernel*> result;
    for (const PtxInstruction& instruction : text.instructions) {
      if (instruction.callee.empty() || is_system_call(instruction.callee)) continue;
      const PtxKernel* callee = callee_of(text, instruction);
      if (std::find(result.begin(), result.end(), callee) == result.end()) result.push_back(callee);
    }
    return result;
  }

  const PtxKernel* callee_of(const PtxKernel& text, const PtxInstruction& instruction) const {
    const auto fail = [&](const std::string& what) {
      PtxLexer::fail_at(instruction.line,
                        fmt::format("{} in '{}': `{}`", what, text.name, module_.line(instruction.line).substr(0, 96)));
    };
    const std::string name(instruction.callee);
    if (name[0] == '%')
      fail(fmt::format("a call by the address in {} is not executed; call a function by its name", name));
    const PtxKernel* callee = module_.find_function(name);
    if (callee == nullptr) fail(fmt::format("the text has no function '{}'", name));
    if (!callee->has_body && (name == "malloc" || name == "free"))
      fail(fmt::format("'{}' needs a heap, which the machine does not have; pass memory as an argument", name));
    if (!callee->has_body)
      fail(fmt::format("function '{}' is only declared here; link what defines it into the text", name));
    return callee;
  }

  bool reaches(size_t from, size_t wanted) const {
    std::vector<bool> seen(found_.size(), false);
    std::vector<size_t> open = {from};
    while (!open.empty()) {
      const size_t f = open.back();
      open.pop_back();
      for (const size_t callee : found_[f].callees) {
        if (callee == wanted) return true;
        if (!seen[callee]) seen[callee] = true, open.push_back(callee);
      }
    }
    return false;
  }

  static constexpr size_t kOpen = ~size_t{0};
  const PtxModule& module_;
  std::unordered_map<const PtxKernel*, size_t> seen_;
  std::vector<ReachedFunction> found_;
};

}  // namespace

bool is_system_call(std::string_view name) { return name == "vprintf" || name == "__assertfail"; }

std::vector<ReachedFunction> reached_functions(const PtxModule& module, const PtxKernel& kernel) {
  return Walk(module).run(kernel);
}

}  // namespace seqtile::sim
