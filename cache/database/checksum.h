// cache/database/checksum.h -- one sum over the fields of a row, each with its type and length.
// SPDX-License-Identifier: Apache-2.0
//
// Each field enters as one type byte ('i', 'r', 't', 'b') and its value. Integers and reals are 8 bytes, little-endian;
// reals are taken by their IEEE bits. Texts and blobs are their length, as such an integer, and then their bytes. Two
// different rows therefore never feed the same bytes, wherever a boundary moves or a type changes. The sum is BLAKE2b,
// keyed if it must resist forgery.
#pragma once
#include <sodium.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace seqtile::cache {

inline constexpr size_t kRowSumBytes = 16;  ///< against damage
inline constexpr size_t kMacBytes = 32;     ///< against forgery

class FieldSum {
 public:
  explicit FieldSum(size_t bytes = kRowSumBytes, std::span<const unsigned char> key = {});
  FieldSum& add(int64_t value);
  FieldSum& add(double value);
  FieldSum& add(std::string_view text);
  FieldSum& add_blob(std::span<const std::byte> bytes);
  std::string finish();  ///< raw bytes; the object is spent

 private:
  void add_tagged(char tag, uint64_t word);
  crypto_generichash_state state_;
  size_t bytes_;
};

}  // namespace seqtile::cache
