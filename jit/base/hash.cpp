// jit/base/hash.cpp -- SHA-256 by libsodium.
// SPDX-License-Identifier: Apache-2.0
#include "jit/base/hash.h"

#include <sodium.h>

namespace seqtile {

std::string sha256_hex(std::string_view bytes) {
  unsigned char digest[crypto_hash_sha256_BYTES];
  crypto_hash_sha256(digest, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  char hex[2 * sizeof digest + 1];
  sodium_bin2hex(hex, sizeof hex, digest, sizeof digest);
  return hex;
}

}  // namespace seqtile
