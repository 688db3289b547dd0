//! A3S Code with a model that a test speaks for: an agent of a3s-code-core, supervised over AHP.
//!
//!     a3s-agent WORKSPACE http URL KEY
//!     a3s-agent WORKSPACE stdio PROGRAM [ARGUMENT ...]
//!
//! Each time the agent asks its model, one line of JSON says what the agent has told it since. The next line
//! of standard input is the shell command that the model wants to run; an empty one ends the session.

use std::io::Write;
use std::sync::Arc;

use a3s_ahp::AuthConfig;
use a3s_code_core::ahp::{AhpHookExecutor, AhpTransport};
use a3s_code_core::hitl::AutoApproveConfirmation;
use a3s_code_core::llm::{StreamEvent, ToolDefinition};
use a3s_code_core::{
    Agent, CodeConfig, ContentBlock, LlmClient, LlmResponse, Message, PlanningMode, SessionOptions, TokenUsage,
};
use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A model that says what it reads on standard input.
struct Spoken;

impl Spoken {
    fn answer(&self, messages: &[Message]) -> Result<LlmResponse> {
        let last = serde_json::to_string(&messages.last().map(|m| &m.content))?;
        println!("{last}");
        std::io::stdout().flush()?;
        let mut command = String::new();
        std::io::stdin().read_line(&mut command)?;
        let command = command.trim_end();
        let (content, stop) = if command.is_empty() {
            (ContentBlock::Text { text: "It is done.".into() }, "end_turn")
        } else {
            let call = ContentBlock::ToolUse {
                id: format!("call_{}", messages.len()),
                name: "bash".into(),
                input: serde_json::json!({ "command": command }),
            };
            (call, "tool_use")
        };
        Ok(LlmResponse {
            message: Message { role: "assistant".into(), content: vec![content], reasoning_content: None },
            usage: TokenUsage {
                prompt_tokens: 1,
                completion_tokens: 1,
                total_tokens: 2,
                cache_read_tokens: None,
                cache_write_tokens: None,
            },
            stop_reason: Some(stop.into()),
            token_logprobs: Vec::new(),
            meta: None,
        })
    }
}

#[async_trait]
impl LlmClient for Spoken {
    async fn complete(&self, m: &[Message], _: Option<&str>, _: &[ToolDefinition]) -> Result<LlmResponse> {
        self.answer(m)
    }

    async fn complete_streaming(
        &self,
        m: &[Message],
        _: Option<&str>,
        _: &[ToolDefinition],
        _: CancellationToken,
    ) -> Result<mpsc::Receiver<StreamEvent>> {
        let response = self.answer(m)?;
        let (tx, rx) = mpsc::channel(1);
        tokio::spawn(async move { tx.send(StreamEvent::Done(response)).await });
        Ok(rx)
    }
}

/// Nobody is asked for a provider's model; the agent wants one to be configured all the same.
const CONFIG: &str = r#"
default_model = "openai/none"
providers "openai" {
  api_key = "sk-none"
  models "none" {
    name = "None"
  }
}
"#;

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let transport = match args.get(1).map(String::as_str) {
        Some("http") if args.len() == 4 => {
            AhpTransport::Http { url: args[2].clone(), auth: Some(AuthConfig::api_key(args[3].clone())) }
        }
        Some("stdio") if args.len() > 2 => {
            AhpTransport::Stdio { program: args[2].clone(), args: args[3..].to_vec() }
        }
        _ => bail!("a3s-agent WORKSPACE http URL KEY, or a3s-agent WORKSPACE stdio PROGRAM [ARGUMENT ...]"),
    };
    let harness = AhpHookExecutor::new(transport).await.context("the harness cannot be reached")?;
    let agent = Agent::from_config(CodeConfig::from_acl(CONFIG)?).await?;
    let session = agent.session(
        args[0].clone(),
        Some(
            SessionOptions::new()
                .with_llm_client(Arc::new(Spoken))
                .with_hook_executor(Arc::new(harness))
                .with_confirmation_manager(Arc::new(AutoApproveConfirmation))
                .with_planning_mode(PlanningMode::Disabled)
                .with_continuation(false)
                .with_max_tool_rounds(100),
        ),
    )?;
    session.send("Try them.", None).await?;
    Ok(())
}
