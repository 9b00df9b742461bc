// Bull Board's own API, asked without a web server: its routes, and a request made by hand.

import { createBullBoard } from '@bull-board/api'
import { BullMQAdapter } from '@bull-board/api/bullMQAdapter'

class Routes {
  setQueues(queues) { this.queues = queues; return this }
  setApiRoutes(routes) { this.routes = routes; return this }
  setErrorHandler(handler) { this.errorHandler = handler; return this }
  setViewsPath() { return this }
  setStaticPath() { return this }
  setUIConfig() { return this }
  setEntryRoute() { return this }
}

export async function board(queues, { method = 'get', route, query = {}, params = {}, body = {} }) {
  const serverAdapter = new Routes()
  createBullBoard({ queues: queues.map(queue => new BullMQAdapter(queue)), serverAdapter, options: { uiBasePath: '.' } })
  const found = serverAdapter.routes.find(one => [one.method].flat().includes(method) && [one.route].flat().includes(route))
  if (!found) {
    const known = serverAdapter.routes.map(one => `${one.method} ${one.route}`).join(', ')
    throw new Error(`Bull Board has no route ${method} ${route}; it has ${known}`)
  }
  const answer = await found.handler({ queues: serverAdapter.queues, query, params, body, headers: {}, uiConfig: {} })
  return { status: answer.status ?? 200, body: answer.body }
}
