// bench/peers/torch.cpp -- starts torch_peer.py and talks to it in JSON lines.
// SPDX-License-Identifier: Apache-2.0
#include "bench/peers/torch.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "jit/error.h"

extern char** environ;

namespace seqtile::bench {
namespace {

using nlohmann::json;

/// A file in memory that holds one operand while the child reads or writes it; removed at the end of its scope.
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

class Child {
 public:
  Child(const std::string& python, const std::string& script) {
    int to_child[2], from_child[2];
    if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) {
      throw Error(ErrorCode::io, std::string("bench: no pipe for PyTorch: ") + std::strerror(errno));
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, to_child[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, from_child[1], STDOUT_FILENO);
    std::string arguments[] = {python, "-u", script};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), nullptr};
    const int status = posix_spawnp(&pid_, python.c_str(), &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(to_child[0]);
    close(from_child[1]);
    input_ = fdopen(to_child[1], "w");
    output_ = fdopen(from_child[0], "r");
    if (status != 0) throw Error(ErrorCode::io, "bench: --torch " + python + ": " + std::strerror(status));
  }
  ~Child() {
    if (input_) std::fclose(input_);  // the child ends when its input does
    if (output_) std::fclose(output_);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  json receive() {
    char* line = nullptr;
    size_t capacity = 0;
    const ssize_t length = getline(&line, &capacity, output_);
    const json reply = length > 0 ? json::parse(line, line + length, nullptr, false) : json(json::value_t::discarded);
    std::free(line);
    if (reply.is_discarded()) throw Error(ErrorCode::io, "bench: PyTorch's process ended or answered no JSON");
    if (reply.contains("error")) {
      throw Error(ErrorCode::unsupported, "PyTorch: " + reply["error"].get<std::string>());
    }
    return reply;
  }
  json ask(const json& command) {
    std::fprintf(input_, "%s\n", command.dump().c_str());
    std::fflush(input_);
    return receive();
  }

 private:
  pid_t pid_ = -1;
  FILE* input_ = nullptr;
  FILE* output_ = nullptr;
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
    } catch (const Error&) {  // the child is gone and its memory with it
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
  StartedTorch(const std::string& python, const std::string& script) : child_(python, script) {
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

std::unique_ptr<TorchPeer> start_torch(const std::string& python) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  signal(SIGPIPE, SIG_IGN);  // a child that died is an error message, not the end of the run
  return std::make_unique<StartedTorch>(python, (folder / "torch_peer.py").string());
}

}  // namespace seqtile::bench
