// Runs the scenarios of the matrix with one SDK, and prints what its user would see: one
// line of JSON for each. Arguments: the SDK, the two addresses, the agents' keys, and how the names of
// the scenarios begin if not all are meant.
const [, , sdk, base, silentBase, keysText, only = ''] = process.argv
const keys = JSON.parse(keysText)
const { default: SDK } = await import(sdk)
const anthropic = sdk.startsWith('anthropic')

function client(scenario, options = {}) {
  const { silent, agent = 'plain', headers = {}, ...rest } = options
  const at = (silent ? silentBase : base) + '/v1/proxy' + (anthropic ? '' : '/openai/v1')
  return new SDK({ apiKey: keys[silent ? 'silent' : agent], baseURL: at, defaultHeaders: { 'x-scenario': scenario, ...headers }, ...rest })
}

// apis are the calls of the SDK: each gives the text and the tools that came, whole or as a
// stream.
const apis = anthropic
  ? {
      messages: {
        ask: (c, s) => c.messages.create({ model: 'claude-sonnet-4-6', max_tokens: 50, messages: [{ role: 'user', content: s }] }),
        read: (m) => ({ text: (m.content ?? []).filter((b) => b.type === 'text').map((b) => b.text).join(''), tools: (m.content ?? []).filter((b) => b.type === 'tool_use').map((b) => b.name + ' ' + JSON.stringify(b.input)), gate: m.gate_id }),
        stream: async (c, s) => {
          const stream = await c.messages.create({ model: 'claude-sonnet-4-6', max_tokens: 50, stream: true, messages: [{ role: 'user', content: s }] })
          let text = '', input = '', tool = '', ended = false, events = 0
          for await (const e of stream) {
            events++
            if (e.type === 'content_block_start' && e.content_block.type === 'tool_use') tool = e.content_block.name
            if (e.type === 'content_block_delta') { text += e.delta.text ?? ''; input += e.delta.partial_json ?? '' }
            if (e.type === 'message_stop') ended = true
          }
          return { text, tools: tool ? [tool + ' ' + input] : [], ended, events }
        },
        helper: async (c, s) => {
          const m = await c.messages.stream({ model: 'claude-sonnet-4-6', max_tokens: 50, messages: [{ role: 'user', content: s }] }).finalMessage()
          return apis.messages.read(m)
        },
      },
    }
  : {
      chat: {
        ask: (c, s) => c.chat.completions.create({ model: 'gpt-4o', messages: [{ role: 'user', content: s }] }),
        read: (m) => ({ text: m.choices?.[0]?.message?.content ?? '', tools: (m.choices?.[0]?.message?.tool_calls ?? []).map((t) => t.function.name + ' ' + t.function.arguments), gate: m.gate_id }),
        stream: async (c, s) => {
          const stream = await c.chat.completions.create({ model: 'gpt-4o', stream: true, messages: [{ role: 'user', content: s }] })
          let text = '', input = '', tool = '', ended = false, events = 0
          for await (const e of stream) {
            events++
            const choice = e.choices?.[0]
            text += choice?.delta?.content ?? ''
            for (const t of choice?.delta?.tool_calls ?? []) { tool += t.function.name ?? ''; input += t.function.arguments ?? '' }
            if (choice?.finish_reason) ended = true
          }
          return { text, tools: tool ? [tool + ' ' + input] : [], ended, events }
        },
      },
      responses: {
        ask: (c, s) => c.responses.create({ model: 'gpt-4o', store: false, input: s }),
        read: (m) => ({ text: m.output_text ?? '', tools: (m.output ?? []).filter((i) => i.type === 'function_call').map((i) => i.name + ' ' + i.arguments), gate: m.gate_id }),
        stream: async (c, s) => {
          const stream = await c.responses.create({ model: 'gpt-4o', store: false, stream: true, input: s })
          let text = '', tools = [], ended = false, events = 0, number = -1, gaps = 0
          for await (const e of stream) {
            events++
            if (e.sequence_number !== undefined) { if (e.sequence_number !== number + 1) gaps++; number = e.sequence_number }
            if (e.type === 'response.output_text.delta') text += e.delta
            if (e.type === 'response.output_item.done' && e.item.type === 'function_call') tools.push(e.item.name + ' ' + e.item.arguments)
            if (e.type === 'response.completed') ended = true
          }
          return { text, tools, ended, events, gaps }
        },
      },
    }

// However long the operator takes to decide on a busy machine.
const patient = { maxRetries: 20 }
const impatient = { timeout: 20000, ...patient }
const scenarios = {
  pass: { stream: false },
  'pass-stream': { stream: true },
  'held-approve': { stream: false, options: impatient },
  'held-stream-approve': { stream: true, options: impatient },
  'quick-reject': { stream: false, options: { silent: true } },
  'late-reject': { stream: false, options: patient },
  'stream-reject': { stream: true },
  'quick-expire': { stream: false, options: { silent: true } },
  'late-expire': { stream: false, options: patient },
  'stream-expire': { stream: true },
  'soft-reject': { stream: false, options: { agent: 'soft', ...patient } },
  'soft-stream-reject': { stream: true, options: { agent: 'soft' } },
  'pending-never': { stream: false, options: { agent: 'short' } },
  'pending-stream-never': { stream: true, options: { agent: 'short' } },
  'async-never': { stream: false, options: { headers: { prefer: 'respond-async' } } },
  'async-stream-never': { stream: true, options: { headers: { prefer: 'respond-async' } } },
  'silent-late': { stream: false, options: { silent: true, timeout: 8000, maxRetries: 1 }, again: true },
  deferred: { stream: false, options: { maxRetries: 1 } },
  overloaded: { stream: false, options: { maxRetries: 1 } },
  redirected: { stream: false, options: { maxRetries: 0 } },
  'broken-stream': { stream: true },
}
const restart = { 'restart-approve': { stream: false }, 'restart-stream-approve': { stream: true } }
const chosen = only ? Object.fromEntries(Object.entries({ ...scenarios, ...restart }).filter(([name]) => name.startsWith(only))) : scenarios

async function run(api, name, scenario, kind) {
  const id = `${sdk}/${api}/${name}`
  const out = { id, scenario: name, api, sdk }
  const one = async () => {
    const c = client(id, scenario.options)
    if (kind === 'helper') return await apis[api].helper(c, id)
    if (scenario.stream) return await apis[api].stream(c, id)
    return apis[api].read(await apis[api].ask(c, id))
  }
  try {
    Object.assign(out, await one())
  } catch (e) {
    out.error = e.constructor.name
    out.status = e.status
    out.message = String(e.message)
    out.kind = e.error?.error?.type ?? e.code ?? e.type
  }
  if (scenario.again) {
    // The operator decides now; the same call has its reply.
    try {
      out.again = apis[api].read(await apis[api].ask(client(id, { silent: true, timeout: 60000, headers: { 'x-again': 'yes' } }), id))
    } catch (e) {
      out.again = { error: e.constructor.name + ' ' + e.message }
    }
  }
  console.log(JSON.stringify(out))
}

// First those whose time does not matter: they load and warm up everything.
const timed = (s) => s.options?.timeout !== undefined
for (const first of [true, false]) {
  await Promise.all(Object.keys(apis).flatMap((api) => Object.entries(chosen).filter(([, s]) => timed(s) !== first).map(([name, s]) => run(api, name, s))))
}
if (anthropic && !only) await run('messages', 'helper-pass', { stream: true }, 'helper')
