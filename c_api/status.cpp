// c_api/status.cpp -- see status.h.
// SPDX-License-Identifier: Apache-2.0
#include "c_api/status.h"

#include <cstdlib>
#include <cstring>

namespace seqtile::c_api {
namespace {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

/// The names of the statuses but SEQTILE_OK are those of ErrorCode, in the same order.
static_assert(static_cast<int>(ErrorCode::internal) + 1 == SEQTILE_INTERNAL);
static_assert(static_cast<int>(ErrorCode::no_record) + 1 == SEQTILE_NO_RECORD);
static_assert(static_cast<int>(ErrorCode::invalid_argument) + 1 == SEQTILE_INVALID_ARGUMENT);

}  // namespace

seqtile_status failed(seqtile_status status, std::string_view text) noexcept {
  try {
    last_error() = text;
  } catch (...) {
    last_error().clear();  // no memory for the text; the status says the rest
  }
  return status;
}

seqtile_status status_of(ErrorCode code) { return static_cast<seqtile_status>(static_cast<int>(code) + 1); }

char* new_text(const std::string& text) {
  auto* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (!copy) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace seqtile::c_api

using namespace seqtile;

const char* seqtile_last_error(void) { return c_api::last_error().c_str(); }

const char* seqtile_status_name(int32_t status) {
  if (status == SEQTILE_OK) return "ok";
  if (status < SEQTILE_OK || status > SEQTILE_INTERNAL) return "unknown";
  return error_code_name(static_cast<ErrorCode>(status - 1)).data();
}

void seqtile_text_free(char* text) { std::free(text); }

void seqtile_set_log(seqtile_log_function log, void* context) { set_log(log, context); }
