//! Verified traces from any OpenAI-compatible server.
