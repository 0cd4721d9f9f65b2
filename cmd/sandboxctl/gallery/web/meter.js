// A quiet meter: what is left of the turn's budget, and how long an idle
// sandbox still lives.
import { $, clock, h } from './dom.js';
import { state, current } from './store.js';

// left is what remains of the turn's budget now, in seconds: it runs down while
// a command runs.
function left(chat) {
  const working = chat.sandbox && !chat.sandbox.idle_since;
  const since = working && !state.away ? (Date.now() - state.readAt) / 1000 : 0;
  return Math.max(0, chat.turn.left_seconds - since);
}

function words(chat) {
  if (!chat.sandbox) return 'no sandbox';
  if (!chat.sandbox.expires_at) return 'at work';
  const gone = (new Date(chat.sandbox.expires_at) - Date.now()) / 1000;
  return gone > 0 ? `sandbox idle, removed in ${clock(gone)}` : 'sandbox is being removed';
}

export function drawMeter() {
  const chat = current();
  const el = $('meter');
  if (!chat) {
    el.replaceChildren();
    return;
  }
  if (!el.firstChild) {
    el.append(h('meter', { id: 'budget', min: 0, 'aria-label': 'Budget of work left in this turn' }),
      h('span', { id: 'budget-text' }), h('span', { id: 'idle-text' }));
  }
  const budget = $('budget');
  budget.hidden = !chat.turn;
  $('budget-text').hidden = !chat.turn;
  if (chat.turn) {
    budget.max = chat.turn.budget_seconds;
    budget.low = chat.turn.budget_seconds / 5;
    budget.value = left(chat);
    $('budget-text').textContent = `${clock(left(chat))} of work left in this turn`;
  }
  $('idle-text').textContent = words(chat);
}

setInterval(() => { if (!document.hidden) drawMeter(); }, 1000);
