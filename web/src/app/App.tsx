import { client } from "../lib/credential.ts";
import { ChatPage } from "../pages/chat/ChatPage.tsx";
import { KeyPage } from "../pages/key/KeyPage.tsx";

/** Shows the page of the address. A page is a folder in `pages/`. */
export function App() {
  return client.value === null ? <KeyPage /> : <ChatPage client={client.value} />;
}
