// bench/peers/torch.cpp -- starts torch_peer.py and talks to it in JSON lines.
// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/torch.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/peers/child.h"
#include "seqtile/error.h"

namespace seqtile::bench {
namespace {

using nlohmann::json;

/// A file in shared memory that holds one operand while the child reads or writes it. The destructor removes the file.
class SharedFile {
 public:
  explicit SharedFile(const std::string& name)
      : path_("/dev/shm/seqtile_bench_" + std::to_string(getpid()) + "_" + name) {}
  ~SharedFile() { std::remove(path_.c_str()); }
  SharedFile(const SharedFile&) = delete;
  SharedFile& operator=(const SharedFile&) = delete;
  const std::string& path() const { return path_; }
  void write(const Operand& operand) const {
    std::ofstream file(path_, std::ios::binary);
    file.write(operand.as<char>(), operand.bytes());
    if (!file.flush()) throw Error(ErrorCode::io, "bench: cannot write " + path_ + "; free some shared memory");
  }
  void read(const Operand& operand) const {
    std::ifstream file(path_, std::ios::binary);
    if (!file.read(operand.as<char>(), operand.bytes())) {
      throw Error(ErrorCode::io, "bench: PyTorch left no output in " + path_);
    }
  }

 private:
  std::string path_;
};

class TorchContestant : public Contestant {
 public:
  TorchContestant(Child& child, const TorchCall& call) : child_(child), output_(*call.output) {
    json command = {{"command", "prepare"},
                    {"operation", call.operation},
                    {"threads", call.threads},
                    {"copies", call.copies},
                    {"dtype", std::string(dtype_name(call.output->tensor().dtype))},
                    {"sizes", json::object()},
                    {"inputs", json::array()}};
    for (const auto& [name, size] : call.sizes) command["sizes"][name] = size;
    std::vector<std::unique_ptr<SharedFile>> files;
    for (const Operand* input : call.inputs) {
      files.push_back(std::make_unique<SharedFile>("input" + std::to_string(files.size())));
      files.back()->write(*input);
      const Tensor& tensor = input->tensor();
      const std::vector<int64_t> sizes(tensor.sizes.begin(), tensor.sizes.begin() + tensor.rank);
      command["inputs"].push_back({{"path", files.back()->path()}, {"sizes", sizes}});
    }
    child_.ask(command);
  }
  ~TorchContestant() override {
    try {
      child_.ask({{"command", "release"}});
    } catch (const Error&) {  // the child is gone, and its memory with it
    }
  }

  void run(int copy) override { burst(copy, 1, copy + 1); }
  std::vector<double> burst(int first, int calls, int copies) override {
    return child_.ask({{"command", "run"}, {"first", first}, {"calls", calls}, {"copies", copies}})
        .at("seconds")
        .get<std::vector<double>>();
  }
  void fetch(int) override {
    const SharedFile file("output");
    child_.ask({{"command", "fetch"}, {"path", file.path()}});
    file.read(output_);
  }

 private:
  Child& child_;
  const Operand& output_;
};

class StartedTorch : public TorchPeer {
 public:
  explicit StartedTorch(const std::string& python) : child_(python, "torch_peer.py") {
    version_ = child_.receive().at("version").get<std::string>();
  }
  std::string version() const override { return version_; }
  std::unique_ptr<Contestant> enter(const TorchCall& call) override {
    return std::make_unique<TorchContestant>(child_, call);
  }

 private:
  Child child_;
  std::string version_;
};

}  // namespace

std::unique_ptr<TorchPeer> start_torch(const std::string& python) { return std::make_unique<StartedTorch>(python); }

}  // namespace seqtile::bench
