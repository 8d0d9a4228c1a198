// tools/cli/simulate/ptx_file.h -- reads a file of PTX, or says what it is instead.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace seqtile::cli {

/// "a cubin: ..." with the next step where the bytes are known to be something else than PTX, empty for PTX.
std::string describe_no_ptx(std::string_view bytes);

/// The text of the file that `flag` names, without a byte order mark. Errors: invalid_argument that says what the file
/// is where it is not PTX. `advice` ends the message for a file that is not there.
std::string read_ptx_file(const std::string& flag, const std::string& path, const std::string& advice);

}  // namespace seqtile::cli
