// MetricsText: what `GET /metrics` answers: all metrics of a server, as Prometheus reads them (text format 0.0.4).
//
//   const MetricsText metrics(sources);
//   const std::string body = metrics.At(clock.Now());       // Content-Type: MetricsText::kContentType.
//
// It looks at what was counted, and takes no time of the core's: it costs what there is to say, however many tasks
// there are. Refers to the sources. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/metrics/metric_rows.h"

namespace sheaf {

class MetricsText {
 public:
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

  explicit MetricsText(MetricSources sources) { LookAt(std::move(sources)); }

  // It looks at these from now on. Those before must outlive it, too.
  void LookAt(MetricSources sources) EXCLUDES(mutex_) {
    auto all = std::make_shared<const MetricSources>(std::move(sources));
    MutexLock lock(mutex_);
    sources_ = std::move(all);
  }

  std::string At(absl::Time now) const EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const MetricSources> sources_ GUARDED_BY(mutex_);
};

}  // namespace sheaf
