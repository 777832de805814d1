"""The message desk: letters between agents as files in `.switchboard/`, where every process of a workspace finds them.

`mail.post.Post` is the store; everything else in this room stands behind it or uses it.
"""
