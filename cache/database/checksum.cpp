// cache/database/checksum.cpp -- see checksum.h.
// SPDX-License-Identifier: Apache-2.0
#include "cache/database/checksum.h"

#include <bit>

namespace seqtile::cache {

FieldSum::FieldSum(size_t bytes, std::span<const unsigned char> key) : bytes_(bytes) {
  crypto_generichash_init(&state_, key.empty() ? nullptr : key.data(), key.size(), bytes_);
}

void FieldSum::add_tagged(char tag, uint64_t word) {
  unsigned char bytes[9] = {static_cast<unsigned char>(tag)};
  for (int i = 0; i < 8; ++i) bytes[1 + i] = static_cast<unsigned char>(word >> (8 * i));
  crypto_generichash_update(&state_, bytes, sizeof bytes);
}

FieldSum& FieldSum::add(int64_t value) {
  add_tagged('i', static_cast<uint64_t>(value));
  return *this;
}

FieldSum& FieldSum::add(double value) {
  add_tagged('r', std::bit_cast<uint64_t>(value));
  return *this;
}

FieldSum& FieldSum::add(std::string_view text) {
  add_tagged('t', text.size());
  crypto_generichash_update(&state_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  return *this;
}

FieldSum& FieldSum::add_blob(std::span<const std::byte> bytes) {
  add_tagged('b', bytes.size());
  crypto_generichash_update(&state_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  return *this;
}

std::string FieldSum::finish() {
  std::string sum(bytes_, '\0');
  crypto_generichash_final(&state_, reinterpret_cast<unsigned char*>(sum.data()), bytes_);
  return sum;
}

}  // namespace seqtile::cache
