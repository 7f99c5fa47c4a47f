// Refuses every request, and spreads the retries over a minute: the least that a server does under a flood.
let refused = 0;

export default {
  fetch() {
    return new Response(null, { status: 429, headers: { "retry-after": String(1 + (refused++ % 60)) } });
  },
};
