// Markdown of models, users and tools, as HTML that can run nothing.
import DOMPurify from "dompurify";
import { marked, type Token, type Tokens, type TokensList } from "marked";

// No `id`, `class` or `style`: such markup could imitate or break the page around it.
const TAGS = [
  "a", "b", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "i", "li", "ol", "p", "pre",
  "s", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
];
const ATTRIBUTES = ["align", "colspan", "href", "rowspan", "start", "title"];

marked.use({
  gfm: true,
  renderer: {
    // An image would tell its server that, and when, the page was read: a link does so only when it is followed.
    image({ href, text }: Tokens.Image) {
      return `<a href="${escape(href)}">${escape(text || href)}</a>`;
    },
    checkbox({ checked }: Tokens.Checkbox) {
      return checked ? "☑ " : "☐ ";
    },
  },
});

DOMPurify.addHook("afterSanitizeAttributes", (element) => {
  if (element.tagName !== "A") return;
  element.setAttribute("target", "_blank");
  element.setAttribute("rel", "noopener noreferrer nofollow");
});

export type Block = Tokens.Code | Token;

/** Splits Markdown into its top-level blocks. */
export function blocks(text: string): Block[] {
  const tokens: TokensList = marked.lexer(text);
  return tokens.filter((token) => token.type !== "space" && token.type !== "def");
}

/** Renders one block. */
export function html(block: Block): string {
  const rendered = marked.parser([block]);
  return DOMPurify.sanitize(rendered, {
    ALLOWED_TAGS: TAGS,
    ALLOWED_ATTR: ATTRIBUTES,
    ALLOWED_URI_REGEXP: /^(?:https?:|mailto:)/i,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    // Typed as a string; the page's policy requires this object.
    RETURN_TRUSTED_TYPE: true,
  }) as unknown as string;
}

function escape(text: string): string {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}
