#include "storage/files/upload_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/log.h"

namespace sheaf {
namespace {

constexpr int64_t kReadChunkBytes = 1 << 20;
// The disk writes so much while the next bytes arrive, so that Finish has little to wait for.
constexpr int64_t kFlushBytes = 8 << 20;

absl::Status NoSuchUpload(const UploadId& id) { return absl::NotFoundError(fmt::format("there is no upload {}", id)); }

}  // namespace

absl::Status UploadFiles::CheckLinks() {
  const std::string probe = directory_ + "/probe";
  const std::string link = directory_ + "/link";
  if (!files_.Open(probe, FileSystem::kCreate).ok()) return absl::OkStatus();
  const absl::Status linked = files_.Link(probe, link);
  for (const std::string& path : {probe, link}) files_.Unlink(path).IgnoreError();
  if (!absl::IsPermissionDenied(linked) && !absl::IsUnimplemented(linked)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{}: the file system has no hard links, which uploads need; put the store on another",
                  std::string(linked.message())));
}

absl::Status UploadFiles::Open() {
  RETURN_IF_ERROR(files_.CreateDirectory(directory_));
  RETURN_IF_ERROR(CheckLinks());
  ASSIGN_OR_RETURN(std::vector<std::string> names, files_.List(directory_));
  for (const std::string& name : names) {
    if (Adopt(name)) continue;
    const absl::Status deleted = files_.Unlink(directory_ + "/" + name);
    if (!deleted.ok()) LogWarning("what is no upload stays among them: {}", deleted.ToString());
  }
  return absl::OkStatus();
}

// Reads "<key>.<size>.<digest>.<part|done>".
std::optional<UploadFileName> UploadFileName::Parse(const std::string& name) {
  size_t first = name.find('.');
  size_t second = first == std::string::npos ? first : name.find('.', first + 1);
  size_t third = second == std::string::npos ? second : name.find('.', second + 1);
  if (third == std::string::npos) return std::nullopt;
  UploadFileName parsed{
      .key = name.substr(0, first), .size_bytes = -1, .digest = name.substr(second + 1, third - second - 1)};
  std::string suffix = name.substr(third + 1);
  std::from_chars(name.data() + first + 1, name.data() + second, parsed.size_bytes);
  parsed.is_finished = suffix == "done";
  if (parsed.key.empty() || !IsSha256Hex(parsed.digest) || parsed.size_bytes < 0 ||
      (!parsed.is_finished && suffix != "part")) {
    return std::nullopt;
  }
  return parsed;
}

// False if the name is no upload's.
bool UploadFiles::Adopt(const std::string& name) {
  const std::optional<UploadFileName> parsed = UploadFileName::Parse(name);
  if (!parsed.has_value()) return false;
  auto stat = files_.GetStat(directory_ + "/" + name);
  if (!stat.ok() || !stat->is_file) return false;

  PayloadStore::Upload upload{.size_bytes = parsed->size_bytes,
                              .digest = parsed->digest,
                              .committed_bytes = std::min(stat->size_bytes, parsed->size_bytes),
                              .is_finished = parsed->is_finished};
  MutexLock lock(mutex_);
  Slot& slot = entries_[parsed->key];
  if (!IsSha256Hex(parsed->key)) slot.id = UploadId(DecodeFileName(parsed->key));
  slot.entry = std::make_shared<Entry>(parsed->key, upload, nullptr);
  return true;
}

std::string UploadFiles::PathOf(const std::string& key, const PayloadStore::Upload& upload) const {
  return fmt::format("{}/{}.{}.{}.{}", directory_, key, upload.size_bytes, upload.digest,
                     upload.is_finished ? "done" : "part");
}

std::map<std::string, UploadFiles::Slot>::iterator UploadFiles::FindSlot(const UploadId& id) {
  const auto found = entries_.find(KeyOf(id));
  return found != entries_.end() ? found : entries_.find(Sha256Hex(id.value()));
}

absl::StatusOr<std::shared_ptr<UploadFiles::Entry>> UploadFiles::Find(const UploadId& id) {
  MutexLock lock(mutex_);
  const auto found = FindSlot(id);
  if (found == entries_.end()) return NoSuchUpload(id);
  found->second.id = id;
  return found->second.entry;
}

PayloadStore::UploadUse UploadFiles::GetUse(std::string_view id_suffix) {
  PayloadStore::UploadUse use;
  MutexLock lock(mutex_);
  for (const auto& [key, slot] : entries_) {
    ++use.num_uploads;
    (slot.entry->is_in_memory ? use.memory_bytes : use.disk_bytes) += slot.entry->size_bytes;
    if (slot.id.empty() || !slot.id.value().ends_with(id_suffix)) continue;
    ++use.num_matching;
    (slot.entry->is_in_memory ? use.matching_memory_bytes : use.matching_disk_bytes) += slot.entry->size_bytes;
  }
  return use;
}

absl::Status UploadFiles::OpenFile(Entry& entry, FileSystem::Mode mode) {
  if (entry.file) return absl::OkStatus();
  ASSIGN_OR_RETURN(entry.file, files_.Open(PathOf(entry), mode));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<UploadFiles::Entry>> UploadFiles::Begin(const std::string& key,
                                                                       const PayloadStore::Upload& upload,
                                                                       UploadMedium medium) {
  if (medium == UploadMedium::kDisk) {
    ASSIGN_OR_RETURN(std::unique_ptr<File> file, files_.Open(PathOf(key, upload), FileSystem::kCreate));
    return std::make_shared<Entry>(key, upload, std::move(file));
  }
  auto memory = std::make_shared<std::string>();
  // A buffer that grows on its own would take twice as much as it has.
  memory->reserve(static_cast<size_t>(upload.size_bytes));
  return std::make_shared<Entry>(key, upload, nullptr, std::move(memory));
}

absl::StatusOr<PayloadStore::Upload> UploadFiles::Start(const UploadId& id, int64_t size_bytes,
                                                        const std::string& digest, UploadMedium medium) {
  if (!IsSha256Hex(digest)) {
    return absl::InvalidArgumentError(fmt::format("the digest of upload {} is not a SHA-256 in lower-case hex", id));
  }
  if (size_bytes < 0) return absl::InvalidArgumentError(fmt::format("the size of upload {} is negative", id));
  std::shared_ptr<Entry> entry;
  {
    MutexLock lock(mutex_);
    auto found = FindSlot(id);
    if (found == entries_.end()) {
      const std::string key = KeyOf(id);
      ASSIGN_OR_RETURN(entry, Begin(key, {.size_bytes = size_bytes, .digest = digest}, medium));
      found = entries_.emplace(key, Slot{.entry = entry, .id = id}).first;
    }
    found->second.id = id;
    entry = found->second.entry;
  }
  entry->is_fresh = true;
  if (entry->is_gone) return absl::UnavailableError(fmt::format("upload {} has ended just now; try again", id));
  if (entry->size_bytes != size_bytes || entry->digest != digest) {
    return absl::AlreadyExistsError(
        fmt::format("upload {} was started with another size or digest; choose a new id", id));
  }
  return entry->Seen(id);
}

absl::StatusOr<PayloadStore::Upload> UploadFiles::Get(const UploadId& id) {
  ASSIGN_OR_RETURN(std::shared_ptr<Entry> entry, Find(id));
  if (entry->is_gone) return NoSuchUpload(id);
  return entry->Seen(id);
}

absl::StatusOr<int64_t> UploadFiles::WriteChunk(const UploadId& id, int64_t offset, std::string_view data,
                                                const PayloadStore::ChunkTaken& taken) {
  ASSIGN_OR_RETURN(std::shared_ptr<Entry> entry, Find(id));
  const int64_t length = static_cast<int64_t>(data.size());
  {
    MutexLock lock(entry->mutex);
    ASSIGN_OR_RETURN(data, WriteNew(id, *entry, offset, data, taken));
    if (data.empty()) return entry->committed_bytes;
    // It is hashed while the next chunk is written, and before that one is.
    entry->hash_mutex.Lock();
  }
  if (entry->hash) entry->hash->Update(data);
  entry->hash_mutex.Unlock();
  return offset + length;
}

absl::StatusOr<std::string_view> UploadFiles::WriteNew(const UploadId& id, Entry& entry, int64_t offset,
                                                       std::string_view data, const PayloadStore::ChunkTaken& taken) {
  if (entry.is_gone) return NoSuchUpload(id);
  const int64_t committed = entry.committed_bytes;
  const int64_t length = static_cast<int64_t>(data.size());
  if (offset < 0 || offset > committed) {
    return absl::OutOfRangeError(
        fmt::format("the chunk at {} of upload {} leaves a gap: continue at {}", offset, id, committed));
  }
  if (length > entry.size_bytes - offset) {
    return absl::OutOfRangeError(
        fmt::format("the chunk at {} of upload {} runs past the announced {} bytes", offset, id, entry.size_bytes));
  }
  if (offset + length <= committed) return std::string_view();
  data.remove_prefix(committed - offset);
  entry.is_fresh = true;
  if (taken && offset + length < entry.size_bytes && !entry.has_failed) taken(offset + length);
  entry.has_failed = true;
  RETURN_IF_ERROR(Write(entry, data));
  entry.has_failed = false;
  entry.committed_bytes = offset + length;
  return data;
}

absl::Status UploadFiles::Write(Entry& entry, std::string_view data) {
  if (entry.memory) {
    entry.memory->append(data);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(OpenFile(entry, FileSystem::kWrite));
  absl::Status status = entry.file->WriteAt(entry.committed_bytes, data);
  // A later chunk overwrites what got written; this only keeps the length right for a restart.
  if (!status.ok()) {
    entry.file->Truncate(entry.committed_bytes).IgnoreError();
    return status;
  }
  const int64_t end = entry.committed_bytes + static_cast<int64_t>(data.size());
  if (end - entry.flushing_bytes >= kFlushBytes) {
    entry.file->StartFlush(entry.flushing_bytes, end - entry.flushing_bytes);
    entry.flushing_bytes = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> UploadFiles::DigestOf(Entry& entry) {
  MutexLock lock(entry.hash_mutex);
  if (!entry.hash) {
    RETURN_IF_ERROR(OpenFile(entry, FileSystem::kWrite));
    Sha256 hash;
    for (int64_t offset = 0; offset < entry.size_bytes; offset += kReadChunkBytes) {
      ASSIGN_OR_RETURN(std::string bytes, entry.file->ReadAt(offset, kReadChunkBytes));
      hash.Update(bytes);
    }
    return std::move(hash).Hex();
  }
  std::string digest = std::move(*entry.hash).Hex();
  entry.hash.reset();
  return digest;
}

absl::Status UploadFiles::Finish(const UploadId& id) {
  ASSIGN_OR_RETURN(std::shared_ptr<Entry> entry, Find(id));
  MutexLock lock(entry->mutex);
  if (entry->is_gone) return NoSuchUpload(id);
  entry->is_fresh = true;
  if (entry->is_finished) return CheckDigest(id, *entry);
  if (entry->committed_bytes < entry->size_bytes) {
    return absl::FailedPreconditionError(fmt::format("upload {} has {} of {} bytes: send the rest first", id,
                                                     entry->committed_bytes.load(), entry->size_bytes));
  }
  if (!entry->memory) RETURN_IF_ERROR(OpenFile(*entry, FileSystem::kWrite));
  ASSIGN_OR_RETURN(std::string digest, DigestOf(*entry));
  if (digest != entry->digest) {
    std::string message = fmt::format("the bytes of upload {} have digest {}, announced was {}; upload them again", id,
                                      digest, entry->digest);
    RETURN_IF_ERROR(Remove(*entry));
    return absl::DataLossError(message);
  }
  if (entry->memory) {
    entry->is_finished = true;
    return absl::OkStatus();
  }
  // The bytes, then the name that says they are all there, then the directory. A crash leaves an upload that goes on
  // where its file ends, or a finished one whose digest is checked again before it is used.
  RETURN_IF_ERROR(entry->file->Sync());
  PayloadStore::Upload finished = entry->Seen(id);
  finished.is_finished = true;
  RETURN_IF_ERROR(files_.Rename(PathOf(*entry), PathOf(entry->key, finished)));
  entry->file.reset();
  absl::Status synced = files_.SyncDirectory(directory_);
  // Only now: whoever sees it asks for the bytes, and would wait for the disk.
  entry->is_finished = true;
  return synced;
}

absl::Status UploadFiles::CheckFinished(const UploadId& id, const Entry& entry) {
  if (entry.is_gone) return NoSuchUpload(id);
  if (entry.is_finished) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("upload {} is not finished", id));
}

absl::Status UploadFiles::CheckMovable(const UploadId& id, Entry& entry) {
  RETURN_IF_ERROR(CheckFinished(id, entry));
  RETURN_IF_ERROR(CheckDigest(id, entry));
  if (!entry.memory) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("upload {} is not to leave the memory", id));
}

absl::Status UploadFiles::CheckDigest(const UploadId& id, Entry& entry) {
  if (!entry.is_unchecked) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::string digest, DigestOf(entry));
  if (digest != entry.digest) {
    return absl::DataLossError(
        fmt::format("the bytes of upload {} in {} no longer have the digest they were accepted "
                    "with",
                    id, PathOf(entry)));
  }
  entry.is_unchecked = false;
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const BlobView>> UploadFiles::OpenView(const UploadId& id) {
  ASSIGN_OR_RETURN(std::shared_ptr<Entry> entry, Find(id));
  MutexLock lock(entry->mutex);
  RETURN_IF_ERROR(CheckFinished(id, *entry));
  RETURN_IF_ERROR(CheckDigest(id, *entry));
  if (entry->memory) return std::make_shared<const MemoryBlobView>(entry->memory);
  ASSIGN_OR_RETURN(std::shared_ptr<const BlobView> view, files_.Map(PathOf(*entry)));
  if (view->size_bytes() != entry->size_bytes) {
    return absl::DataLossError(
        fmt::format("{} has {} bytes; {} were accepted", PathOf(*entry), view->size_bytes(), entry->size_bytes));
  }
  return view;
}

void UploadFiles::Forget(Entry& entry) {
  entry.is_gone = true;
  entry.file.reset();
  MutexLock lock(mutex_);
  entries_.erase(entry.key);
}

absl::Status UploadFiles::Remove(Entry& entry) {
  if (!entry.memory) RETURN_IF_ERROR(files_.Unlink(PathOf(entry)));
  Forget(entry);
  return absl::OkStatus();
}

absl::Status UploadFiles::Delete(const UploadId& id) {
  auto entry = Find(id);
  if (!entry.ok()) return absl::OkStatus();
  MutexLock lock((*entry)->mutex);
  return (*entry)->is_gone ? absl::OkStatus() : Remove(**entry);
}

int64_t UploadFiles::DeleteStale(absl::Time now, absl::Duration keep) {
  std::vector<std::shared_ptr<Entry>> stale;
  {
    MutexLock lock(mutex_);
    for (auto& [key, slot] : entries_) {
      if (slot.entry->is_fresh.exchange(false)) slot.seen_time = now;
      if (now - slot.seen_time >= keep) stale.push_back(slot.entry);
    }
  }
  int64_t num_deleted = 0;
  for (const std::shared_ptr<Entry>& entry : stale) {
    MutexLock lock(entry->mutex);
    if (entry->is_gone || entry->is_fresh) continue;
    if (const absl::Status removed = Remove(*entry); !removed.ok()) {
      LogWarning("a stale upload stays: {}", removed.ToString());
      continue;
    }
    ++num_deleted;
  }
  return num_deleted;
}

}  // namespace sheaf
