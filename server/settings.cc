#include "server/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

namespace sheaf {
namespace {

absl::Status ParseText(const std::string& text, std::string& value) {
  value = text;
  return absl::OkStatus();
}

absl::Status ParseSwitch(const std::string& text, bool& value) {
  if (text != "true" && text != "false") {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is neither true nor false", text));
  }
  value = text == "true";
  return absl::OkStatus();
}

absl::Status ParsePositive(const std::string& text, absl::Duration& value) {
  absl::Duration parsed;
  if (!absl::ParseDuration(text, &parsed) || parsed <= absl::ZeroDuration() || parsed == absl::InfiniteDuration()) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not a duration such as \"30s\" or \"5m\"", text));
  }
  value = parsed;
  return absl::OkStatus();
}

absl::Status ParseBytes(const std::string& text, int64_t& value) {
  static constexpr std::array<std::pair<std::string_view, int>, 6> kUnits = {
      {{"", 0}, {"B", 0}, {"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}}};
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const auto* found = std::find_if(kUnits.begin(), kUnits.end(), [&](const auto& row) { return row.first == unit; });
  if (error != std::errc() || found == kUnits.end() || number <= 0 ||
      number > (std::numeric_limits<int64_t>::max() >> found->second)) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not a size such as \"65536\" or \"64MiB\"", text));
  }
  value = number << found->second;
  return absl::OkStatus();
}

absl::Status ParsePercent(const std::string& text, int64_t& value) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > 100) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not a number from 1 to 100", text));
  }
  value = number;
  return absl::OkStatus();
}

absl::Status ParseCount(const std::string& text, int64_t& value) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number <= 0) {
    return absl::InvalidArgumentError(fmt::format("\"{}\" is not a number greater than 0", text));
  }
  value = number;
  return absl::OkStatus();
}

absl::Status ApplyStore(const std::string& text, Config& config) {
  if (text != "sqlite" && text != "memory") {
    return absl::InvalidArgumentError(fmt::format("there is no store \"{}\"; choose sqlite or memory", text));
  }
  return ParseText(text, config.store);
}

absl::Status ApplyLogLevel(const std::string& text, Config& config) {
  if (ParseLogLevel(text, &config.log_level)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("\"{}\" is not a log level; choose debug, info, warning, error or off", text));
}

constexpr Setting kSettings[] = {
    {"listen", "127.0.0.1:7433", "Address and port to serve on; port 0 picks a free one.", false,
     [](const std::string& text, Config& config) { return ParseText(text, config.listen); }},
    {"tls_cert", "", "PEM file with the server's certificate and those up to its authority; turns TLS on.", false,
     [](const std::string& text, Config& config) { return ParseText(text, config.tls.certificate); }},
    {"tls_key", "", "PEM file with the key of --tls-cert.", false,
     [](const std::string& text, Config& config) { return ParseText(text, config.tls.key); }},
    {"tls_client_ca", "", "PEM file with authorities: clients must show a certificate that one of them signed.", false,
     [](const std::string& text, Config& config) { return ParseText(text, config.tls.authorities); }},
    {"insecure", "false", "Allow an address that other machines can reach without TLS.", true,
     [](const std::string& text, Config& config) { return ParseSwitch(text, config.insecure); }},
    {"data_dir", "sheaf-data", "Directory of the store; created if it is not there.", false,
     [](const std::string& text, Config& config) { return ParseText(text, config.data_dir); }},
    {"store", "sqlite", "sqlite, or memory: forgets everything when the server ends.", false, ApplyStore},
    {"port_file", "", "File to write the address to once the server is ready.", false,
     [](const std::string& text, Config& config) { return ParseText(text, config.port_file); }},
    {"log_level", "info", "debug, info, warning, error or off.", false, ApplyLogLevel},
    {"stop_grace", "1s", "How long open calls may take to end when the server is told to stop.", false,
     [](const std::string& text, Config& config) { return ParsePositive(text, config.stop_grace); }},
    {"lease_default", "30s", "A worker without progress for this long loses its task, unless the round says otherwise.",
     false, [](const std::string& text, Config& config) { return ParsePositive(text, config.limits.lease_default); }},
    {"poll_wait_max", "60s", "Longest long poll; keep it below the idle timeout of any proxy on the way.", false,
     [](const std::string& text, Config& config) { return ParsePositive(text, config.limits.poll_wait_max); }},
    {"unreferenced_keep", "1h", "Uploads and blobs that nothing refers to are kept this long.", false,
     [](const std::string& text, Config& config) { return ParsePositive(text, config.limits.unreferenced_keep); }},
    {"ended_keep", "720h", "Rounds that ended and workers that were not seen are kept this long.", false,
     [](const std::string& text, Config& config) { return ParsePositive(text, config.limits.ended_keep); }},
    {"ended_rounds_max", "2000", "Rounds that ended and are kept, with their aggregates; the oldest go first.", false,
     [](const std::string& text, Config& config) { return ParseCount(text, config.limits.ended_rounds_max); }},
    {"handshake_timeout", "20s", "Whoever connects and says nothing for this long is hung up on.", false,
     [](const std::string& text, Config& config) { return ParsePositive(text, config.limits.handshake_timeout); }},
    {"queue_wait_max", "200ms", "Once a crowd of calls waits for this long, further ones are told to come back.", false,
     [](const std::string& text, Config& config) { return ParsePositive(text, config.limits.queue_wait_max); }},
    {"queued_calls_max", "2048", "Calls that wait to be done; further ones are refused with a time to come back.",
     false, [](const std::string& text, Config& config) { return ParseCount(text, config.limits.queued_calls_max); }},
    {"open_request_bytes_max", "512MiB", "Memory for the requests that are being answered.", false,
     [](const std::string& text, Config& config) { return ParseBytes(text, config.limits.open_request_bytes_max); }},
    {"open_answer_bytes_max", "512MiB", "Memory for answers that clients have not taken yet.", false,
     [](const std::string& text, Config& config) { return ParseBytes(text, config.limits.open_answer_bytes_max); }},
    {"answer_time_max", "2m", "An answer that its client does not take for so long is cut off.", false,
     [](const std::string& text, Config& config) { return ParsePositive(text, config.limits.answer_time_max); }},
    {"receive_bytes_max", "1GiB", "Memory for what is arriving, on all connections.", false,
     [](const std::string& text, Config& config) { return ParseBytes(text, config.limits.receive_bytes_max); }},
    {"calls_per_second_max", "100000", "Calls of one identity, that is of all tokens of one name.", false,
     [](const std::string& text, Config& config) { return ParseCount(text, config.limits.calls_per_second_max); }},
    {"parked_polls_max", "50000", "Workers that wait in a call; further ones are told to come back later.", false,
     [](const std::string& text, Config& config) { return ParseCount(text, config.limits.parked_polls_max); }},
    {"workers_max", "200000", "Workers that called within ten minutes.", false,
     [](const std::string& text, Config& config) { return ParseCount(text, config.limits.workers_max); }},
    {"workers_per_identity_max", "100000", "Workers per identity.", false,
     [](const std::string& text, Config& config) { return ParseCount(text, config.limits.workers_per_identity_max); }},
    {"population_percent_max", "90",
     "What one population may have of what the others leave of anything shared, in percent.", false,
     [](const std::string& text, Config& config) { return ParsePercent(text, config.limits.population_percent_max); }},
    {"live_rounds_max", "10000", "Rounds that have not ended.", false,
     [](const std::string& text, Config& config) { return ParseCount(text, config.limits.live_rounds_max); }},
    {"live_tasks_max", "2000000", "Tasks of all rounds that have not ended.", false,
     [](const std::string& text, Config& config) { return ParseCount(text, config.limits.live_tasks_max); }},
    {"contribution_bytes_max", "1GiB", "Largest contribution.", false,
     [](const std::string& text, Config& config) { return ParseBytes(text, config.limits.contribution_bytes_max); }},
    {"broadcast_bytes_max", "16GiB", "Largest broadcast.", false,
     [](const std::string& text, Config& config) { return ParseBytes(text, config.limits.broadcast_bytes_max); }},
    {"accumulator_bytes_max", "8GiB", "Memory that the accumulators of one round may take.", false,
     [](const std::string& text, Config& config) { return ParseBytes(text, config.limits.accumulator_bytes_max); }},
    {"spool_bytes_max", "256GiB", "Disk for contributions that no checkpoint covers yet.", false,
     [](const std::string& text, Config& config) { return ParseBytes(text, config.limits.spool_bytes_max); }},
    {"upload_bytes_max", "256GiB", "Disk for uploads under way, by their announced sizes.", false,
     [](const std::string& text, Config& config) { return ParseBytes(text, config.limits.upload_bytes_max); }},
    {"unfolded_bytes_max", "2GiB", "Memory for contributions that are being checked or wait to be folded.", false,
     [](const std::string& text, Config& config) { return ParseBytes(text, config.limits.unfolded_bytes_max); }},
    {"memory_upload_bytes_max", "4GiB", "Memory for uploads under way to EPHEMERAL rounds.", false,
     [](const std::string& text, Config& config) { return ParseBytes(text, config.limits.memory_upload_bytes_max); }},
    {"uploads_per_identity_max", "1024", "Uploads that one identity may have under way.", false,
     [](const std::string& text, Config& config) { return ParseCount(text, config.limits.uploads_per_identity_max); }},
    {"checkpoint_spool_bytes", "64MiB", "Contributions spooled before a checkpoint replaces them.", false,
     [](const std::string& text, Config& config) { return ParseBytes(text, config.limits.checkpoint_spool_bytes); }},
};

// Levenshtein's distance, one row at a time.
size_t TypingErrors(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string Setting::flag() const {
  std::string name = fmt::format("--{}", key);
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

std::string Setting::variable() const {
  std::string name = fmt::format("SHEAF_{}", key);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::span<const Setting> Settings() { return kSettings; }

const Setting* FindSetting(std::string_view key) {
  for (const Setting& setting : kSettings) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

std::string_view NearestKey(std::string_view key) {
  return std::min_element(
             std::begin(kSettings), std::end(kSettings),
             [&](const Setting& a, const Setting& b) { return TypingErrors(key, a.key) < TypingErrors(key, b.key); })
      ->key;
}

}  // namespace sheaf
