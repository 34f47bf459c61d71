-- Who holds what, and until when, is asked of memory, where it is kept for every call of every worker.
DROP INDEX tasks_by_expiry;
DROP INDEX tasks_by_worker;
