// tools/cli/simulate/ptx_file.h -- reads a file of PTX, or names the kind of another file.
// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>
#include <string_view>

namespace seqtile::cli {

/// The kind of file and the next step, "a cubin; ...", if the bytes are known not to be PTX; empty for PTX.
std::string describe_no_ptx(std::string_view bytes);

/// The text of the file that `flag` names, without a byte order mark. Errors: invalid_argument that names the kind of a
/// file that is not PTX. `advice` ends the message about an absent file.
std::string read_ptx_file(const std::string& flag, const std::string& path, const std::string& advice);

}  // namespace seqtile::cli
