"""What the examples in the headers of storage refer to."""

STORAGE = """
extern Clock& clock; extern absl::Time now; extern absl::Time expire_time; extern absl::Duration lease, attempt, backoff;
extern TaskStore& store; extern PayloadStore& payloads; extern TaskQueries& queries;
extern RoundId& id; extern WorkerName& worker; extern std::vector<LeaseToken>& tokens;
extern SqlConnection& connection; extern int64_t key;
extern FileSystem& files; extern std::string directory, scratch, path, from, to, bytes, digest, name, population;
"""

# Of one header: what differs from its folder's.
STORAGE_OF = {
    "blob_view.h": "extern int64_t offset, length; extern std::vector<ByteRange>& ranges; extern std::string& rows;",
    "files/fetched_blobs.h": "extern FetchedBlobs& fetched; "
                             "extern std::function<absl::Status(const std::string&, const ByteSink&)> Read;",
    "files/store_hold.h": "extern HoldGate& gate;",
    "memory/memory_payload_store.h": "extern UploadId& id;",
    "postgres/owned_session.h": "extern PostgresConnection* connection; extern PostgresOwner* owner;",
    "postgres/open.h": "extern Random& random;",
    "postgres/postgres_heartbeat.h": "extern PostgresOwner* owner; extern absl::Duration takeover_after; "
                                     "extern std::function<absl::Status()> Recover;",
    "postgres/postgres_contents.h": "extern PostgresConnection* connection; extern ByteSink take; "
                                    "extern std::function<absl::Status(const ByteSink& take)> write;",
    "postgres/postgres_owner.h": "extern PostgresConnection* connection;",
    "postgres/conninfo.h": "extern std::string text;",
    "postgres/payload_copy.h": "extern std::unique_ptr<SqlConnection> rows; extern std::unique_ptr<PostgresConnection> connection;",
    "postgres/table_copy.h": "extern SqlConnection& from; extern PostgresConnection& to;",
    "postgres/unfinished_copy.h": "extern std::unique_ptr<PostgresConnection> connection;",
    "postgres/postgres_place.h": "extern PostgresValues& values; extern RowPlace place; extern SqlRow& row;",
    "postgres/peer_address.h": "extern std::string pem, secret;",
    "postgres/value_lists.h": "extern std::vector<WorkerRecord>& workers; extern PostgresSession& session;",
    "shard_directory.h": "extern ShardDirectory& shards_of_it;",
    "second_lease.h": "extern TaskId& id; extern LeaseToken& token;",
    "single_leases.h": "extern std::string& requirement; extern TaskRecord& task; extern std::vector<std::string>& fulfilled; "
                       "extern int n;",
    "sql/batch_notes.h": "extern BatchNotes& notes; extern TaskRecord& before; extern TaskRecord& after;",
    "sql/inputs_ahead.h": "extern InputsAhead& inputs;",
    "sql/lease_table.h": "extern LeaseTable& leases; extern TaskRecord& task; extern TaskId& id;",
    "sql/row_place.h": "extern SqlEngine& engine; extern WorkerRecord& worker;",
    "sql/waiting_tasks.h": "extern WaitingTasks& waiting; extern size_t number; extern int index; "
                           "extern std::vector<size_t>& numbers;",
    "sqlite/checksum_vfs.h": "extern sqlite3* database; extern int flags;",
    "sqlite/log_check.h": "extern std::string vfs;",
    "transitions.h": "extern RoundRecord& round;",
}

FOLDERS = {
    "storage": (["base/check.h", "base/clock.h", "base/status_macros.h", "cerrno", "cstdio", "sqlite3.h"], STORAGE, STORAGE_OF),
}
