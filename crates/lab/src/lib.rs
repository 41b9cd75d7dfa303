//! Jobs, plans, incidents, conformance and reports.
