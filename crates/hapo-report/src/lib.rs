//! Run folders to pages: the report, its figures, the live view.
