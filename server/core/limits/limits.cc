#include "server/core/limits/limits.h"

#include <fmt/format.h>

#include <algorithm>

#include "absl/strings/cord.h"
#include "base/check.h"
#include "base/retry_hint.h"

namespace sheaf {
namespace {

// What a refusal carries: the limit's name.
constexpr char kPayload[] = "sheaf/limit";

constexpr bool kSetting = true;
constexpr bool kFixed = false;

const LimitAnswer kNone = {};
const LimitAnswer kRefused = {.code = absl::StatusCode::kResourceExhausted};
const LimitAnswer kInvalid = {.code = absl::StatusCode::kInvalidArgument};
// A verdict takes the sentence.
const LimitAnswer kRejected = {.code = absl::StatusCode::kResourceExhausted};
LimitAnswer ComeBackAfter(absl::Duration pause) {
  return {.code = absl::StatusCode::kResourceExhausted, .come_back_after = pause};
}

const LimitRow& RowOf(LimitField field) {
  const std::span<const LimitRow> rows = LimitRows();
  const auto row = std::find_if(rows.begin(), rows.end(), [field](const LimitRow& r) { return r.field == field; });
  SHEAF_CHECK(row != rows.end(), "a limit without a row");
  return *row;
}

int64_t ValueOf(const Limits& limits, LimitField field) {
  if (const auto* time = std::get_if<absl::Duration Limits::*>(&field)) {
    return absl::ToInt64Milliseconds(limits.**time);
  }
  return limits.*std::get<int64_t Limits::*>(field);
}

absl::Status Answer(LimitField field, const std::string& sentence) {
  const LimitRow& row = RowOf(field);
  const LimitAnswer& answer = row.answer;
  absl::Status status(answer.code == absl::StatusCode::kOk ? absl::StatusCode::kResourceExhausted : answer.code,
                      sentence);
  status.SetPayload(kPayload, absl::Cord(absl::string_view(row.name.data(), row.name.size())));
  return answer.come_back_after == absl::ZeroDuration() ? status : WithRetryAfter(status, answer.come_back_after);
}

}  // namespace

std::map<std::string, int64_t> Limits::ByName() const {
  std::map<std::string, int64_t> values;
  for (const LimitRow& row : LimitRows()) values[row.public_name()] = ValueOf(*this, row.field);
  return values;
}

std::string Limits::Named(LimitField field) const {
  return fmt::format("{} = {}", RowOf(field).public_name(), ValueOf(*this, field));
}

std::string Limits::Sentence(LimitField field, std::string_view found, std::string_view remedy) const {
  return fmt::format("{} {}; {}", found, Named(field), remedy.empty() ? RowOf(field).remedy : remedy);
}

std::string Limits::SentenceOfShare(LimitField field, std::string_view found) const {
  return Sentence(field, fmt::format("{} {} % of what others leave of", found, Named(&Limits::population_percent_max)));
}

absl::Status Limits::Refuse(LimitField field, std::string_view found, std::string_view remedy) const {
  return Answer(field, Sentence(field, found, remedy));
}

absl::Status Limits::RefuseShare(LimitField field, std::string_view found) const {
  return Answer(field, SentenceOfShare(field, found));
}

std::optional<size_t> RefusingLimit(const absl::Status& status) {
  if (status.ok()) return std::nullopt;
  const auto payload = status.GetPayload(kPayload);
  if (!payload) return std::nullopt;
  const std::string name(*payload);
  const std::span<const LimitRow> rows = LimitRows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const LimitRow& r) { return name == r.name; });
  if (row == rows.end()) return std::nullopt;
  return static_cast<size_t>(row - rows.begin());
}

std::string LimitRow::public_name() const { return fmt::format("{}{}", name, kind == LimitKind::kTime ? "_ms" : ""); }

std::span<const LimitRow> LimitRows() {
  static const LimitRow kRows[] = {
#define LIMIT(kind, name, value, setting, answer, what, beyond, remedy) \
  {LimitKind::k##kind, #name, &Limits::name, setting, answer, what, beyond, remedy},
#include "server/core/limits/limits.def"
  };
  return kRows;
}

}  // namespace sheaf
