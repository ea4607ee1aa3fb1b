"""The router's side of downloads: the job table, its journal, the downloader process, and what is told about them."""
