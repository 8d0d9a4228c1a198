// bench/peers/torch.h -- PyTorch as a peer: a child process that runs calls when told to.
// SPDX-License-Identifier: Apache-2.0
//
// PyTorch brings its own OpenMP and MKL, so it lives in a process of its own (torch_peer.py) that reads one JSON line
// for each command. Its bursts alternate with ours in the same minute; operands and outputs pass through files in
// memory.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "bench/harness.h"
#include "bench/operands.h"

namespace seqtile::bench {

/// What the child runs: an operation by our name, with the sizes that it needs.
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

/// Starts `python` with the script that lies beside this executable. Errors: io when it cannot be started or has no
/// torch.
std::unique_ptr<TorchPeer> start_torch(const std::string& python);

}  // namespace seqtile::bench
