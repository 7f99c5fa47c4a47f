import { Component } from "preact";
import { useMemo } from "preact/hooks";
import { blocks, html, type Block } from "../lib/markdown.ts";
import { CopyButton } from "./CopyButton.tsx";

/** Shows Markdown. While the text grows, only its last block is rendered again. */
export function Markdown({ text }: { text: string }) {
  const list = useMemo(() => blocks(text), [text]);
  return <div class="markdown">{list.map((block, index) => <MarkdownBlock key={index} block={block} />)}</div>;
}

class MarkdownBlock extends Component<{ block: Block }> {
  override shouldComponentUpdate({ block }: { block: Block }) {
    return block.raw !== this.props.block.raw;
  }

  override render() {
    const { block } = this.props;
    if (block.type !== "code") return <div dangerouslySetInnerHTML={{ __html: html(block) }} />;
    return (
      <figure class="code">
        <figcaption>{block.lang || "text"}<CopyButton text={block.text} /></figcaption>
        <pre tabIndex={0}><code>{block.text}</code></pre>
      </figure>
    );
  }
}
