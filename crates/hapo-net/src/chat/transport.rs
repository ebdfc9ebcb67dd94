//! One request and its answer, read whole.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use crate::http::ureq::http::{HeaderMap, HeaderValue, StatusCode, header};
use crate::http::ureq::tls::{RootCerts, TlsConfig};
use crate::http::ureq::{self, Agent, Timeout};
use hapo_core::Refusal;
use serde_json::Value;

use super::RetryPolicy;
use super::address::Address;

/// Posts to one address. A request takes a thread of the runtime's blocking pool.
#[derive(Clone, Debug)]
pub(super) struct Transport {
    agent: Agent,
    address: Arc<str>,
    authorization: Option<HeaderValue>,
    response_limit: usize,
}

pub(super) struct Received {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) cut: Option<String>,
}

impl Transport {
    pub(super) fn new(
        address: Address,
        authorization: Option<String>,
        policy: &RetryPolicy,
    ) -> Result<Self, Refusal> {
        let mut authorization =
            authorization.map(|it| HeaderValue::from_str(&it)).transpose().map_err(|_| {
                Refusal::input("the API key has characters that no header can hold")
                    .hint("look for a line break or another character that is no part of it")
            })?;
        if let Some(it) = &mut authorization {
            it.set_sensitive(true);
        }
        let certificates = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let agent = crate::http::config(address.is_https)
            .tls_config(certificates)
            .timeout_global(Some(policy.timeout))
            .timeout_connect(Some(policy.timeout.min(Duration::from_secs(30))))
            .build()
            .new_agent();
        Ok(Self {
            agent,
            address: address.posted.into(),
            authorization,
            response_limit: policy.response_limit,
        })
    }

    /// What the server says of its models; none where it does not.
    pub(super) fn models(&self) -> Option<Value> {
        let address = self.address.replacen("/chat/completions", "/models", 1);
        let longest = Some(Duration::from_secs(10));
        let mut request = self.agent.get(address).config().timeout_global(longest).build();
        if let Some(it) = &self.authorization {
            request = request.header(header::AUTHORIZATION, it);
        }
        let mut body = Vec::new();
        let answer = request.call().ok()?.into_body().into_reader();
        answer.take(self.response_limit as u64).read_to_end(&mut body).ok()?;
        serde_json::from_slice(&body).ok()
    }

    pub(super) async fn post(&self, body: Arc<[u8]>) -> Result<Received, String> {
        let transport = self.clone();
        let received = tokio::task::spawn_blocking(move || transport.receive(&body));
        received.await.unwrap_or_else(|_| Err("the request was abandoned".to_owned()))
    }

    fn receive(&self, body: &[u8]) -> Result<Received, String> {
        let mut request = self.agent.post(&*self.address).content_type("application/json");
        if let Some(it) = &self.authorization {
            request = request.header(header::AUTHORIZATION, it);
        }
        let (parts, mut answer) = request.send(body).map_err(|it| reason(&it))?.into_parts();
        let limit = self.response_limit;
        let mut body = Vec::new();
        let read = answer.as_reader().take(limit as u64 + 1).read_to_end(&mut body);
        let cut = match read {
            Ok(length) if length > limit => Some(format!("an answer of more than {limit} bytes")),
            Ok(_) => None,
            Err(it) => Some(reason(&ureq::Error::from(it))),
        };
        Ok(Received { status: parts.status, headers: parts.headers, body, cut })
    }
}

fn reason(error: &ureq::Error) -> String {
    let kind = match error {
        ureq::Error::Timeout(Timeout::Connect | Timeout::Resolve)
        | ureq::Error::HostNotFound
        | ureq::Error::ConnectionFailed => "no connection",
        ureq::Error::Timeout(_) => "no answer in time",
        ureq::Error::Io(it) if it.kind() == std::io::ErrorKind::ConnectionRefused => {
            "no connection"
        }
        _ => "the connection broke",
    };
    format!("{kind}: {error}")
}
