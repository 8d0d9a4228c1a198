// bench/peers/torch.h -- PyTorch as a peer, in a child process.
// SPDX-License-Identifier: Apache-2.0
//
// PyTorch brings its own OpenMP and MKL, so it runs in a process of its own (torch_peer.py), which reads one JSON line
// for each command. Its bursts alternate with ours in the same minute. Operands and outputs are passed in files in
// shared memory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/operands.h"

namespace seqtile::bench {

/// A call for the child: an operation by our name, and the sizes that it needs.
struct TorchCall {
  std::string operation;
  int threads = 1;
  std::vector<std::pair<std::string, int64_t>> sizes;
  std::vector<const Operand*> inputs;  ///< values of copy 0; the child makes its own copies
  const Operand* output = nullptr;     ///< of copy 0
  int copies = 2;
};

class TorchPeer {
 public:
  virtual ~TorchPeer() = default;
  virtual std::string version() const = 0;
  virtual std::unique_ptr<Contestant> enter(const TorchCall& call) = 0;
};

/// Starts `python` with torch_peer.py, a file beside this executable. Errors: io if it cannot be started or has no
/// torch.
std::unique_ptr<TorchPeer> start_torch(const std::string& python);

}  // namespace seqtile::bench
