#include "storage/files/file_payload_store.h"
#include "storage/memory/memory_payload_store.h"
#include "tests/conformance/payload_store_suite.h"
#include "tests/storage/temporary_directory.h"

namespace sheaf {
namespace {

class MemoryUnderTest final : public PayloadStoreUnderTest {
 public:
  PayloadStore& store() override { return store_; }

 private:
  MemoryPayloadStore store_;
};

class FilesUnderTest final : public PayloadStoreUnderTest {
 public:
  FilesUnderTest() { Reopen(); }
  PayloadStore& store() override { return *store_; }
  void Reopen() override {
    store_.reset();
    auto opened = FilePayloadStore::Open(files_, directory_.path());
    SHEAF_CHECK(opened.ok(), "{}", opened.status().ToString());
    store_ = *std::move(opened);
  }

 private:
  TemporaryDirectory directory_;
  PosixFileSystem files_;
  std::unique_ptr<FilePayloadStore> store_;
};

}  // namespace

std::vector<PayloadStoreKind> PayloadStoresUnderTest() {
  return {{"memory", [] { return std::make_unique<MemoryUnderTest>(); }},
          {"files", [] { return std::make_unique<FilesUnderTest>(); }}};
}

}  // namespace sheaf
